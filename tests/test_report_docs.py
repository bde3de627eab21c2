"""What docs/report.md says is what the report does."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from sweeper.report.command import main

pytest.importorskip("plotly")
pytest.importorskip("matplotlib")

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^python -m sweeper\.report (.*)$", PAGE, re.MULTILINE)
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder beside which the recorded results are, as in a checkout."""
    made = tmp_path_factory.mktemp("checkout")
    (made / "results").symlink_to(ROOT / "results")
    return made


def test_its_commands_and_programs_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert COMMANDS
    for command in COMMANDS:
        assert main(shlex.split(command)) == 0
    assert (folder / "report-pitfalls" / "report.html").is_file()
    assert not (folder / "report-pitfalls" / "figures").exists()
    said = []
    for program in PROGRAMS:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(program, "report.md", "exec"), {})  # noqa: S102 - the page's own programs
        said.append(out.getvalue())
    assert re.fullmatch(r"(tiled \d \d\.\d{4} ms\n)+", said[0])
    assert "problems have a valid configuration" in said[1]


def test_it_has_every_part_of_the_page(folder: Path) -> None:
    page = (folder / "report-tile-sweep" / "report.html").read_text(encoding="utf-8")
    parts = set(re.findall(r"<h2[^>]*>([^<]*)</h2>", page)) | {"Confirmations"}
    named = re.search(r"\| part \| question \|\n.*\n((?:\|.*\n)*)", PAGE)
    assert named
    assert parts == {line.split("|")[1].strip() for line in named[1].splitlines()}
