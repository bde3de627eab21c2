"""What docs/troubleshooting.md and docs/measurement.md quote is what the program says, word for word."""

from __future__ import annotations

import ast
import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeper.cli.app import main
from sweeper.doctor.command import main as doctor

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
MEASUREMENT = (ROOT / "docs" / "measurement.md").read_text(encoding="utf-8")
VARIES = "…"


def quoted(page: str) -> Iterator[str]:
    """The first cells of the tables whose head is `it says`."""
    for head, rows in re.findall(r"^\| ([^|]*) \|.*\n\|[-|]*\|\n((?:\|.*\n)+)", page, re.MULTILINE):
        for row in rows.splitlines() if head == "it says" else ():
            found = re.match(r"\| (`+)(.*?)\1 \|", row)
            assert found, row
            yield found[2].strip()


def typed() -> list[tuple[str, str]]:
    """The rows of the table of what is typed and what is said."""
    (rows,) = re.findall(r"^\| typed \| said \|\n\|[-|]*\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    cells = [re.fullmatch(r"\| `(.*)` \| `(.*)` \|", row) for row in rows.splitlines()]
    return [(found[1], found[2]) for found in cells if found]


@functools.cache
def literals() -> tuple[str, ...]:
    """Every text in the sources, with `…` for what is put into it."""
    found: set[str] = set()
    for path in (*(ROOT / "sweeper").rglob("*.py"), ROOT / "tools" / "install_pycuda.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (p.value if isinstance(p, ast.Constant) else VARIES for p in node.values)
                found.add("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return tuple(found)


MESSAGES = [*quoted(PAGE), *quoted(MEASUREMENT)]


def test_both_pages_quote_messages() -> None:
    assert len(list(quoted(PAGE))) > 50
    assert len(list(quoted(MEASUREMENT))) > 5


@pytest.mark.parametrize("message", MESSAGES)
def test_a_quoted_message_is_in_the_source(message: str) -> None:
    words = message.strip(f"{VARIES} ")
    assert len(words) > 7
    pattern = re.compile(".*".join(map(re.escape, words.split(VARIES))), re.DOTALL)
    assert any(pattern.search(text) for text in literals())


@pytest.mark.parametrize(("command", "said"), typed())
def test_what_is_typed_is_answered_so(
    command: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)) == 2
    assert said in capsys.readouterr().err


def test_the_table_of_what_is_typed_is_read_whole() -> None:
    assert len(typed()) == PAGE.partition("| typed | said |")[2].partition("\n\n")[0].count("\n") - 1


def test_the_doctor_that_the_page_begins_with_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "python -m sweeper.doctor" in PAGE.split("```")[1]
    monkeypatch.chdir(tmp_path)
    assert doctor([]) in (0, 3)
    assert re.search(r"^\S+ +(gpu|emulator) run ", capsys.readouterr().out, re.MULTILINE)
