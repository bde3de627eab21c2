"""What docs/emulator.md says of the command and of the function is what they do."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from sweeper.check import api
from sweeper.check.command import main
from sweeper.check.report import Verdict
from sweeper.emulation import FindingKind

PAGE = (Path(__file__).parents[1] / "docs" / "emulator.md").read_text(encoding="utf-8")
SAXPY = Path(__file__).parents[1] / "docs" / "examples" / "saxpy"


def cells(first: str) -> list[str]:
    """The first column of the table whose header's first cell is `first`, without backticks, split at commas."""
    table = re.search(rf"^\| {first} \|.*\n\| ?-.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table, first
    return [name for row in table[1].splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]


def test_every_kind_is_explained() -> None:
    assert sorted(cells("kind")) == sorted({*FindingKind, *Verdict} - {FindingKind.NOT_EMULABLE})


def test_every_argument_is_explained() -> None:
    named = set(cells("argument"))
    assert named == set(inspect.signature(api.assert_clean).parameters)
    assert named <= set(inspect.signature(api.check_kernel).parameters)


def test_the_test_of_ones_own_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the example kernel, at fewer configurations than the page's ten lines take."""
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len([line for line in example.splitlines() if line]) <= 10
    (tmp_path / "kernels").symlink_to(SAXPY)
    monkeypatch.chdir(tmp_path)
    few = {"configurations": 1, "shapes_each": 2}
    whole = api.check_kernel
    monkeypatch.setattr(api, "check_kernel", lambda path, **how: whole(path, **{**how, **few}))
    scope: dict[str, object] = {}
    exec(compile(example, "docs/emulator.md", "exec"), scope)  # noqa: S102
    assert scope["KERNELS"] == [Path("kernels/saxpy.yaml")]
    scope["test_kernel"](Path("kernels/saxpy.yaml"))  # type: ignore[operator]


def test_every_key_that_the_page_names_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for key in re.findall(r"`((?:check|measure)\.\w+)", PAGE):
        assert key in text
    codes = re.findall(r"^\| (\d+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert [code for code, _ in codes] == re.findall(r"\d+", text.partition("exit codes")[2])
