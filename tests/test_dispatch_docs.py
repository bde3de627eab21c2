"""What docs/dispatch.md says is what the dispatcher does."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from sweeper.dispatch import Answer
from sweeper.dispatch.choose import _NEARLY_BEST, CONFIRMED_MARGIN, DISTANCE_COST
from sweeper.dispatch.command import main

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "dispatch.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^python -m sweeper\.dispatch (.*)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_run(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)) == 0


def test_its_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "dispatch.md", "exec"), {})  # noqa: S102 - the page's own program
    assert len(said.getvalue().splitlines()) == 4


def test_it_has_every_key_of_an_answer() -> None:
    table = PAGE.rpartition("| key | what |")[2]
    named = re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in table.splitlines()[2:] if line))
    assert sorted(named) == sorted([*Answer.__dataclass_fields__, "how"])


def test_its_numbers_are_the_codes() -> None:
    assert f"more than {CONFIRMED_MARGIN - 1:.0%} faster".replace("%", " %") in PAGE
    assert f"within {_NEARLY_BEST - 1:.0%} of the best".replace("%", " %") in PAGE
    assert f"costs a candidate {DISTANCE_COST:.0%}".replace("%", " %") in PAGE
