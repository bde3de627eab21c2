"""What docs/export.md says is what the exporter does: its commands and programs run, in the order of the page."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_export import chosen

from sweeper.dispatch.choose import CONFIRMED_MARGIN
from sweeper.export import Export, Provenance
from sweeper.export.command import FORMATS, main
from sweeper.export.json_table import json_table

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_its_commands_and_programs_run_and_print_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "results").symlink_to(ROOT / "results")
    said = ""
    for language, text in BLOCKS:
        if language == "sh":
            for command in text.splitlines():
                assert main(shlex.split(command)[3:]) == 0, command
            said = capsys.readouterr().out
        elif language == "python":
            exec(compile(text, "export.md", "exec"), {})  # noqa: S102 - the page's own program
            assert "{'tile': 32}" in capsys.readouterr().out
        elif language == "cpp" and shutil.which("g++"):
            (tmp_path / "main.cpp").write_text(text, encoding="utf-8")
            subprocess.run(
                ["g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "main.cpp"], check=True, timeout=120
            )
            said = subprocess.run(["./a.out"], check=True, capture_output=True, text=True, timeout=60).stdout
        elif language == "text" and said:
            assert text in said
    sys.modules.pop("tiled_best", None)


def test_its_formats_are_the_commands() -> None:
    table = PAGE.partition("| `--format` | for |")[2].partition("\n\n")[0]
    assert tuple(re.findall(r"^\| \[`(\w+)`\]", table, re.MULTILINE)) == FORMATS


def test_it_has_every_key_of_the_json_table() -> None:
    content = json.loads(json_table(Export([chosen()])))
    table = dict(re.findall(r"^\| (`.*?`) \| (.*) \|$", PAGE.partition("## JSON")[2], re.MULTILINE))
    assert [key for cell in table for key in re.findall(r"`(\w+)`", cell)] == list(content)
    assert table["`rows`"].partition(": ")[2].split(", and ")[0].split(", ") == [
        key for key in content["rows"][0] if key != "provenance"
    ]
    assert table["`provenance`"].split(", ") == list(Provenance.__dataclass_fields__)


def test_its_margin_is_the_codes() -> None:
    assert f"more than {CONFIRMED_MARGIN - 1:.0%} faster".replace("%", " %") in " ".join(PAGE.split())
