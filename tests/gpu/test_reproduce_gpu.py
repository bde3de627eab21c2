"""On a GPU: what was measured a minute ago is measured again and agrees, and what was made up does not."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import pytest
from command_rig import rows, runs

from sweeper.cli.app import main as sweeper
from sweeper.compare.command import main as compare
from sweeper.device.present import why_no_gpu
from sweeper.reproduce.command import main

pytestmark = pytest.mark.skipif(bool(why_no_gpu(ask=True)), reason=str(why_no_gpu(ask=True)))

ROOT = Path(__file__).parents[2]
TILES = ["kernel=tiled", "kernel.params.tile=[8,16,32]", "shape=2048x2048x2048", "search=grid"]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "out"
    command = ["backend=cuda", *TILES, "measure.stop_factor=null", f"results_dir={folder}"]
    assert sweeper(command) == 0
    return folder


def test_all_rows_of_this_gpu_agree_with_themselves(
    published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path / "new"
    capsys.readouterr()
    assert main([str(published), "--rows", "all", "--results-dir", str(new)]) == 0
    assert "not as recorded" not in capsys.readouterr().err
    table = rows(new, "reproduced.csv")
    assert {row["agreement"] for row in table} == {"agrees"}
    assert {row["kernel"] for row in table} >= {"tiled", "cublas"}
    assert {row["context"] for row in rows(new)} == {row["context"] for row in rows(published)}
    assert {row["time_source"] for row in rows(new)} == {"measured"}
    assert runs(new)[0]["reproduces"]["run"] == runs(published)[0]["id"]


def test_two_runs_on_this_gpu_have_no_row_that_is_two_per_cent_slower(
    published: Path, tmp_path: Path
) -> None:
    new = tmp_path / "again"
    command = ["backend=cuda", *TILES, "measure.stop_factor=null", "resume=false", f"results_dir={new}"]
    assert sweeper(command) == 0
    assert compare([str(published), str(new), "--fail-on-slower", "2%", "--fail-on-failure"]) == 0


def test_a_time_that_was_made_up_is_found_out(published: Path, tmp_path: Path) -> None:
    table = rows(published)
    for row in table:
        if row["param_tile"] == "16":
            row |= {name: repr(0.8 * float(row[name])) for name in ("time_ms", "time_low_ms", "time_high_ms")}
    made_up = tmp_path / "made_up"
    made_up.mkdir()
    (made_up / "run.json").write_bytes((published / "run.json").read_bytes())
    with (made_up / "trials.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    new = tmp_path / "new"
    assert main([str(made_up), "--rows", "all", "--results-dir", str(new)]) == 1
    told = {row["params"]: row["agreement"] for row in rows(new, "reproduced.csv")}
    assert told['{"tile": 16}'] == "slower"
    assert told['{"tile": 8}'] == told['{"tile": 32}'] == "agrees"


def test_a_recorded_result_can_be_measured_again_here_and_says_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's command. It was recorded with older sources, maybe on another GPU, so no verdict is asked for."""
    page = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^python -m sweeper\.reproduce (results/\S+.*)$", page, re.MULTILINE)
    results, *rest = shlex.split(command)
    new = tmp_path / "new"
    assert main([str(ROOT / results), *rest, "--results-dir", str(new)]) in (0, 1)
    assert "another source than recorded" in capsys.readouterr().err
    told = {row["kernel"]: row for row in rows(new, "reproduced.csv")}
    assert told["tiled"]["agreement"] != "failed"
