"""The shipped experiments with a report on a GPU: the library stands in the course, and mistakes have a price."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from bench_rig import no_gpu

from sweeper.cli.app import main

pytestmark = pytest.mark.skipif(no_gpu(), reason="no GPU, or no PyCUDA")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def lines(path: str) -> dict[str, list[str]]:
    """The rows of the table in a report, by their second cell and, without one, their first."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in Path(path).read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
    ]
    return {row[1] if row[0].isdigit() or not row[0] else row[0]: row for row in rows}


def test_a_course_is_measured_and_has_the_library_marked(capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "experiment=ladder",
        "kernel=naive,tiled,register_tile,tma_pipeline",
        "shape=1025x1025x1025",
        "search.budget=2",
    ]
    assert main([*command, "build.compiler=nvrtc", "results_dir=out"]) == 0
    table = lines("out/course.md")
    assert [table[name][0] for name in ("naive", "tiled", "register_tile")] == ["1", "2", "4"]
    assert table["tiled"][-1].endswith("×")
    assert "cublas" in table
    said = capsys.readouterr().out
    assert "│" in said
    assert "not here: tma_pipeline (rung 8): " in said
    assert "LDA * 4 % 16 == 0: 4 != 0 (LDA = 1025)" in said


def test_a_mistake_costs_time_and_the_counter_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Where a profiler can be used; else a line says why there are no counters."""
    kernels = "pitfall_bank_conflicts,pitfall_spills"
    command = ["experiment=pitfalls", f"kernel={kernels}", "shape=1024x1024x1024", "build.compiler=nvrtc"]
    assert main([*command, "results_dir=out"]) == 0
    table, said = lines("out/pitfalls.md"), capsys.readouterr().out
    for mistake in ("bank conflicts", "spilled registers"):
        assert float(table[mistake][3].rstrip("×")) > 1
    if "counters: " in said:
        return
    with Path("out/profile.csv").open(newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 4
    for mistake in ("bank conflicts", "spilled registers"):
        spoiled, sound = (float(cell.replace(",", "")) for cell in table[mistake][5:7])
        assert spoiled > sound
