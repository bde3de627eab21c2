"""From what people type to the jobs that run: shapes, sweeps, overrides, folders, and mistakes in any of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command_rig import PretendedGpu, kernel_in, rows, runs, sweep

from sweeper.paths import kernels_dir

NAIVE = ["kernel=naive", "search.budget=1"]


def shapes(folder: Path) -> list[tuple[str, str, str, str]]:
    return [(row["shape"], row["m"], row["n"], row["k"]) for row in rows(folder)]


@pytest.mark.parametrize("multirun", [[], ["-m"]])
@pytest.mark.parametrize("value", ["128,256,64", "128", "(128,256,64)", "[128,256]", "128x256"])
def test_sizes_that_would_become_other_shapes_are_refused_with_the_right_form(
    here: Path, multirun: list[str], value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # hydra-ecosystem/hydra#573
    assert sweep(*multirun, *NAIVE, f"shape={value}") == 2
    assert "write " in capsys.readouterr().err
    assert not list(here.iterdir())


@pytest.mark.parametrize("form", ["shape=12x25x6", "+shape=12x25x6", "shape=[12,25,6]", "shape='[12,25,6]'"])
def test_one_shape_has_many_spellings(here: Path, gpu: PretendedGpu, form: str) -> None:
    assert gpu.sweep(*kernel_in(here), form, "results_dir=out") == 0
    assert shapes(here / "out") == [("12x25x6", "12", "25", "6")]


def test_sizes_by_name_are_a_shape_too(here: Path, gpu: PretendedGpu) -> None:
    assert gpu.sweep(*kernel_in(here), "shape.m=12", "shape.n=25", "shape.k=6", "results_dir=out") == 0
    assert shapes(here / "out") == [("12x25x6", "12", "25", "6")]


def test_a_list_of_shapes_is_one_job_each(here: Path, gpu: PretendedGpu) -> None:
    command = ["-m", *kernel_in(here), "shape=[12,25,6],[7,7,7],tiny,9x8x7", "results_dir=out"]
    assert gpu.sweep(*command) == 0
    assert [row["shape"] for row in rows(here / "out")] == ["12x25x6", "7x7x7", "tiny", "9x8x7"]


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("tlie=8", "did you mean 'kernel.params.tile'?"),
        ("+tlie=8", "did you mean 'kernel.params.tile'?"),
        ("++tlie=8", "did you mean 'kernel.params.tile'?"),
        ("+tile=8", "did you mean 'kernel.params.tile'?"),
        ("++kernel.params.BMM=64", "parameter BMM is never used"),
        ("kernel.params.tyle=16", "(did you mean 'tile'?)"),
        ("kernel.parms.tile=8", "did you mean 'params'?"),
        ("kernel.launch.blok=[8]", "did you mean 'block'?"),
        ("search.budgt=3", "did you mean 'budget'?"),
        ("+measure.min_sample=3", "did you mean 'min_samples'?"),
        ("++build.worker=1", "did you mean 'workers'?"),
        ("hydra.jbo.chdir=true", "unknown key hydra.jbo (did you mean 'job'?)"),
        ("++hydra.job.cdir=true", "unknown key hydra.job.cdir (did you mean 'chdir'?)"),
        ("+hydra.lancher=basic", "unknown key hydra.lancher (did you mean 'launcher'?)"),
        ("hydra/lancher=basic", "hydra/lancher"),
        ("shape.q=3", "unknown key shape.q"),
    ],
)
def test_a_key_that_does_not_exist_is_an_error_whatever_its_prefix(
    here: Path, override: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # hydra-ecosystem/hydra#1912
    assert sweep("kernel=tiled", override) == 2
    assert says in capsys.readouterr().err
    assert not list(here.rglob("study.db"))


@pytest.mark.parametrize("prefix", ["", "+", "++"])
def test_a_key_that_exists_takes_a_value_whatever_its_prefix(here: Path, prefix: str) -> None:
    """`+` is no error where the key is there already, and needed nowhere."""
    # hydra-ecosystem/hydra#947
    assert (
        sweep("kernel=tiled", f"{prefix}kernel.params.tile=8", f"{prefix}search.budget=3", "--dry-run") == 0
    )


def test_a_second_smaller_sweep_into_a_folder_adds_to_it_and_overwrites_nothing(
    here: Path, gpu: PretendedGpu, capsys: pytest.CaptureFixture[str]
) -> None:
    """Though the folder is named as Hydra's own: both sweeps' rows are there, each once, and both commands."""
    # hydra-ecosystem/hydra#2103
    kernel = kernel_in(here, params={"block": [8, 16, 32]})
    assert gpu.sweep("-m", *kernel, "kernel.params.block=8,16,32", "hydra.sweep.dir=out") == 0
    first = {row["param_block"]: row["time_ms"] for row in rows(here / "out")}
    assert set(first) == {"8", "16", "32"}
    assert gpu.sweep("-m", *kernel, "kernel.params.block=8,16", "shape=tiny", "hydra.sweep.dir=out") == 0
    assert f"{here / 'out'} holds 3 earlier runs; this one is added" in capsys.readouterr().out
    found = [(row["shape"], row["param_block"]) for row in rows(here / "out")]
    assert found == [*(("small", block) for block in first), ("tiny", "8"), ("tiny", "16")]
    assert {r["param_block"]: r["time_ms"] for r in rows(here / "out") if r["shape"] == "small"} == first
    recorded = runs(here / "out")
    assert len({run["id"] for run in recorded}) == len(recorded) == 5
    assert not (here / "results").exists()


def test_a_failing_job_is_a_row_and_the_summary_counts_how_all_ended(
    here: Path, gpu: PretendedGpu, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first fails, the others run; at the end stands how many ended how."""
    # hydra-ecosystem/hydra#2284
    kernel = kernel_in(here, params={"block": [8, 16, 999]})
    assert gpu.sweep("-m", *kernel, "kernel.params.block=999,16,8", "results_dir=out") == 1
    assert [row["status"] for row in rows(here / "out")] == ["infeasible", "ok", "ok"]
    assert "3 configurations in 3 jobs: 2 ok, 1 infeasible" in capsys.readouterr().out


def test_an_error_says_which_job_it_was_when_it_happens_and_at_the_end(
    here: Path, gpu: PretendedGpu, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = kernel_in(here)
    command = ["-m", *kernel, "shape=12x25x6,0x1x1,7x7x7", "results_dir=out"]
    assert gpu.sweep(*command) == 2
    captured = capsys.readouterr()
    assert "error: job 2 (" in captured.err
    assert "shape=0x1x1): configuration: shape.m = 0" in captured.err
    assert "2 configurations in 3 jobs: 2 ok" in captured.out
    assert "  job 2 (" in captured.out
    assert [run["exit_code"] for run in runs(here / "out")] == [0, 2, 0]


@pytest.mark.parametrize("flag", ["--fail-fast", "fail_fast=true"])
def test_fail_fast_begins_no_job_after_the_first_failure(
    here: Path, gpu: PretendedGpu, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = kernel_in(here, params={"block": [8, 16, 999]})
    assert gpu.sweep(flag, "-m", *kernel, "kernel.params.block=16,999,8,4", "results_dir=out") == 1
    assert [row["param_block"] for row in rows(here / "out")] == ["16", "999"]
    assert "2 jobs not begun, for fail_fast" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("chdir", "source"), [("true", "./mm.cu"), ("false", "./mm.cu"), ("true", "sub/../mm.cu")]
)
def test_a_source_beside_its_description_is_found_wherever_the_job_runs(
    here: Path, gpu: PretendedGpu, chdir: str, source: str
) -> None:
    # hydra-ecosystem/hydra#922
    folder = here / "kernels"
    kernel_in(folder)
    (folder / "sub").mkdir()
    shutil.move(folder / "mine.cu", folder / "mm.cu")
    description = folder / "mine.yaml"
    description.write_text(description.read_text().replace("source: mine.cu", f"source: {source}"))
    command = ["--config-dir", "kernels", "kernel=mine", f"hydra.job.chdir={chdir}", "results_dir=out"]
    assert gpu.sweep(*command) == 0
    assert len(rows(here / "out")) == 1


@pytest.mark.parametrize("chdir", ["true", "false"])
def test_a_source_may_be_named_from_the_folder_of_the_command(
    here: Path, gpu: PretendedGpu, chdir: str
) -> None:
    """Where there is none beside the description: `kernel.source=mine.cu` is a file of where one is."""
    for name in ("02_tiled.cu", "element.cuh"):
        shutil.copy(kernels_dir() / "gemm" / name, here)
    (here / "mine.cu").write_text("// fake: kernels gemm_tiled\n" + (here / "02_tiled.cu").read_text())
    command = ["kernel=tiled", "kernel.source=./mine.cu", "kernel.params.tile=8", f"hydra.job.chdir={chdir}"]
    assert sweep(*command, "shape=tiny", "results_dir=out") == 0
    assert rows(here / "out")[0]["status"] == "ok"


def test_a_source_that_is_nowhere_is_told_with_the_folders_searched(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("kernel=tiled", "kernel.source=absent.cu") == 2
    err = capsys.readouterr().err
    assert "no file 'absent.cu'" in err
    assert str(here) in err


@pytest.mark.parametrize(
    ("objective", "direction", "code"),
    [
        ("gflops", "maximize", 0),
        ("gflops", "null", 0),
        ("time_ms", "minimize", 0),
        ("gflops", "minimize", 2),
        ("time_ms", "maximize", 2),
        ("speed", "null", 2),
    ],
)
def test_a_direction_that_contradicts_what_is_sought_is_an_error(
    here: Path, objective: str, direction: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    # hydra-ecosystem/hydra#2047
    options = [f"search.objective={objective}", f"search.direction={direction}"]
    assert sweep("kernel=tiled", *options, "--dry-run") == code
    assert bool(capsys.readouterr().err) == bool(code)


@pytest.mark.parametrize("objective", ["gflops", "time_ms"])
def test_the_best_is_the_fastest_whichever_way_it_is_said(
    here: Path, gpu: PretendedGpu, objective: str
) -> None:
    kernel = kernel_in(here, params={"block": [4, 8, 16, 32]})
    assert gpu.sweep(*kernel, f"search.objective={objective}", "results_dir=out") == 0
    (best,) = rows(here / "out", "best.csv")
    assert best["param_block"] == "32"


def test_a_kernel_that_does_not_exist_is_answered_with_those_that_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert sweep("kernel=tild") == 2
    err = capsys.readouterr().err
    assert "tiled" in err
    assert "register_tile" in err


@pytest.mark.parametrize("override", ["label=block=(16,16)", "+label=block=(16,16)", "build.compiler=a=b{c"])
def test_a_value_that_needs_quotes_is_named_with_how_to_write_it(
    override: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("kernel=tiled", override) == 2
    err = capsys.readouterr().err
    assert override.lstrip("+") in err
    assert "quotes" in err


def test_several_values_without_multirun_say_what_to_add(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("kernel=tiled", "kernel.params.tile=8,16") == 2
    assert "--multirun" in capsys.readouterr().err
