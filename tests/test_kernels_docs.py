"""The way from a `.cu` to a header that docs/kernels.md shows is walked here, in the order of the page."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from sweeper.check.command import main as check
from sweeper.cli.app import main as sweep
from sweeper.export.command import main as export
from sweeper.importance.command import main as importance

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
WALK = PAGE.partition("## From a `.cu` to a header in ten minutes")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", WALK, re.MULTILINE | re.DOTALL)
SAXPY = ROOT / "docs" / "examples" / "saxpy"
PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    "sweeper": sweep,
    # Fewer configurations and shapes than a user checks.
    "sweeper.check": lambda words: check([*words, "check.configurations=2", "check.shapes=2"]),
    "sweeper.importance": importance,
    "sweeper.export": export,
}


@pytest.fixture
def walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder but for `docs`, in which every command of the walk has been given."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    for _, text in (block for block in BLOCKS if block[0] == "sh"):
        for line in text.splitlines():
            _, _, program, *words = shlex.split(line)
            emulated = ["backend=emulator"] if program == "sweeper" else []
            assert PROGRAMS[program]([*words, *emulated]) == 0, line
    return tmp_path


def test_its_commands_run_one_after_the_other_and_its_program_compiles(walked: Path) -> None:
    *_, (_, program) = (block for block in BLOCKS if block[0] == "cpp")
    (walked / "host.cu").write_text(program, encoding="utf-8")
    macros = dict(
        re.findall(r"#define (SWEEPER_SAXPY_\w+) (\d+)$", (walked / "saxpy_best.h").read_text(), re.MULTILINE)
    )
    assert set(re.findall(r"SWEEPER_SAXPY_\w+", program)) <= set(macros)
    nvcc = shutil.which("nvcc")
    if nvcc:
        subprocess.run([nvcc, "-arch=sm_80", "-c", "host.cu", "-o", "host.o"], check=True, timeout=120)


def test_its_description_is_the_examples() -> None:
    (shown,) = (text for language, text in BLOCKS if language == "yaml")
    assert yaml.safe_load(shown) == yaml.safe_load((SAXPY / "saxpy.yaml").read_text(encoding="utf-8"))


def test_what_it_began_with_is_the_examples_plain_kernel() -> None:
    began = next(text for language, text in BLOCKS if language == "cpp").split("\n//")[0].strip()
    plain = (SAXPY / "saxpy.cu").read_text(encoding="utf-8").rpartition("\nextern")[2]
    assert began == f"extern{plain}".strip().replace("saxpy_plain", "saxpy")


def test_the_readmes_way_is_this_one() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for line in readme.splitlines():
        if line.startswith("python -m ") and "results/saxpy" in line:
            assert line in WALK.splitlines()
