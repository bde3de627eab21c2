"""What docs/importance.md says is what the analysis does."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from sweeper.importance import Importance
from sweeper.importance.command import main

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "importance.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^python -m sweeper\.importance (.*)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_run(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)) == 0


def test_what_it_shows_is_what_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert main(shlex.split(COMMANDS[0])) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in shown.splitlines() if line.strip() != "…" and line not in printed] == []


def test_its_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "importance.md", "exec"), {})  # noqa: S102 - the page's own program
    assert said.getvalue().startswith("bm ")


def test_it_has_every_key_of_a_record() -> None:
    table = PAGE.rpartition("| key | what |")[2].partition("\n\n")[0]
    named = re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in table.splitlines()[2:] if line))
    assert sorted(named) == sorted(Importance.__dataclass_fields__)
