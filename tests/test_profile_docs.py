"""docs/profile.md says what the columns are, which options there are and what warps wait for, as the code has it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sweeper.profile.command import main
from sweeper.profile.execution_rules import WAITS
from sweeper.profile.figures import FIGURES
from sweeper.profile.files import COLUMNS
from sweeper.profile.metrics import STALLS

PAGE = (Path(__file__).parents[1] / "docs" / "profile.md").read_text(encoding="utf-8")


def test_the_figures_are_the_documented_ones_with_unit_and_meaning() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]*?) ?\| ([^|]+) \|$", PAGE.partition("### The figures")[2], re.MULTILINE
    )
    documented = rows[: len(FIGURES)]
    assert documented == [(f.name, f.unit, f.meaning) for f in FIGURES]


def test_every_other_column_is_named_on_the_page() -> None:
    assert [name for name in COLUMNS if f"`{name}`" not in PAGE] == []


def test_every_reason_that_warps_wait_for_is_explained() -> None:
    unexplained = set(STALLS) - {"selected", "misc"} - set(re.findall(r"`(\w+)`", PAGE))
    assert not unexplained


def test_every_reason_with_advice_is_counted() -> None:
    assert set(WAITS) <= set(STALLS)


def test_every_option_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    options = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert options <= set(re.findall(r"--[a-z][a-z-]+", PAGE))
