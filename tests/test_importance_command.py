"""`python -m sweeper.importance`: what it prints and how it ends."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from importance_rig import SPACES, grid, logarithmic, table

from sweeper.importance import analyse, told
from sweeper.importance.command import main
from sweeper.table import write_csv

WARP = str(SPACES / "warp_tile-2048.csv.gz")


@pytest.fixture
def part(tmp_path: Path) -> Path:
    """A study that left some configurations out, with failures among the rest."""
    points = [
        p
        for p in grid(tile=(8, 16, 32), unroll=(1, 2, 4), kind=("a", "b"))
        if p["unroll"] < 4 or p["tile"] < 32
    ]
    time = logarithmic(lambda p: 0.5 * (p["tile"] == 8) + 0.1 * p["unroll"])
    made = table(points, lambda p: None if (p["tile"], p["kind"]) == (8, "b") else time(p))
    write_csv(made, tmp_path / "trials.csv")
    return tmp_path / "trials.csv"


def test_it_tells_of_the_best_its_parameters_pairs_neighbours_and_levels(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([WARP]) == 0
    said = capsys.readouterr().out
    assert said.startswith("warp_tile float32 2048x2048x2048 on NVIDIA H200, measured\n")
    assert "1012 configurations, 949 valid" in said
    assert "functional ANOVA: exact over all 1012 feasible configurations" in said
    for heading in ("Shares of the variance", "Pairs, beyond", "The best with one", "Each level,"):
        assert f"\n\n{heading}" in said
    assert "infeasible" in said


def test_it_says_what_is_a_guess_and_what_failed(part: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(part)]) == 0
    said = capsys.readouterr().out
    assert "fANOVA: a regression forest on 16 configurations" in said
    assert " to " in said.partition("Shares")[2].partition("\n\n")[0]
    assert "failed configurations count as slow as the slowest valid one" in said


def test_no_line_is_wider_than_a_terminal_of_a_hundred_columns(
    part: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([WARP, str(part)])
    said = capsys.readouterr().out
    long = {
        f"a_parameter_of_a_very_long_name_{n}": [f"{'v' * 60}{level}" for level in range(3)] for n in range(3)
    }
    said += told(analyse(table(grid(**long), lambda p: 1.0 + len(set(p.values())))))
    assert max(map(len, said.splitlines())) <= 100


def test_json_has_everything(part: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(part), WARP, "--format", "json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["analyses"]
    assert first["results"] == part.parent.name
    assert (first["whole"], second["whole"]) == (False, True)
    assert second["winner"]["params"]["bm"] == 128
    assert first["failed"] == {"launch_error": 3}
    assert math.isclose(sum(one["top"]["value"] for one in second["parameters"]), 1)


def test_a_table_is_taken_for_whole_where_that_is_said(
    part: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(part), "--whole"]) == 0
    assert "exact over all 16 feasible configurations" in capsys.readouterr().out


def test_one_study_alone(part: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(part), "--study", "k-float32-s-0"]) == 0
    assert "16 configurations" in capsys.readouterr().out
    assert main([str(part), "--study", "another"]) == 2
    assert "no study 'another' is in the results" in capsys.readouterr().err


def test_where_everything_failed_it_says_so_and_ends_with_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_csv(table(grid(a=range(3)), lambda p: None), tmp_path / "trials.csv")
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "3 configurations, 0 valid, 3 launch_error" in said
    assert "every configuration failed" in said


def test_bad_arguments_and_files_are_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main([str(tmp_path / "nothing")]) == 4
    foreign = tmp_path / "notes.txt"
    foreign.write_text("no table")
    assert main([str(foreign)]) == 4
    errors = capsys.readouterr().err
    assert errors.count("error: ") == 3
    assert "Traceback" not in errors
