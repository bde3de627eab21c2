"""What a launch may ask of a device: ruled out with its numbers before it is tried, and at nobody else's cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_rig import PRODUCT_CU, PretendedGpu, kernel_in, rows, sweep


def statuses(folder: Path) -> list[str]:
    return [row["status"] for row in rows(folder)]


def test_a_block_of_too_many_threads_is_pruned_before_it_is_compiled(here: Path, gpu: PretendedGpu) -> None:
    """The limit and the number stand in the row, and the sweep goes on."""
    # JuliaGPU/CuArrays.jl#211; KernelTuner/kernel_tuner#251
    kernel = kernel_in(
        here,
        params={"x": [64], "y": [32]},
        launch={"block": ["x", "y"], "grid": ["ceil(N / x)", "ceil(M / y)"]},
    )
    sizes = ["kernel.params.y=32,16", "shape=100x100x8"]
    assert gpu.sweep("-m", *kernel, *sizes, "results_dir=out") == 1
    many, fits = rows(here / "out")
    assert (many["status"], many["stage"]) == ("infeasible", "space")
    assert "threads <= max_threads: 2048 > 1024" in many["reason"]
    assert (fits["status"], fits["threads"]) == ("ok", "1024")
    assert gpu.compiled == 1


@pytest.mark.parametrize(
    ("declared", "bytes_each", "status", "says"),
    [
        ("static_shared_bytes", 64, "infeasible", "65536 > 49152"),
        ("shared_bytes", 64, "ok", ""),
        ("shared_bytes", 1024, "infeasible", "1048576 > 232448"),
    ],
)
def test_shared_memory_is_held_against_the_limit_of_its_kind(
    here: Path, declared: str, bytes_each: int, status: str, says: str
) -> None:
    """What the source declares itself may be 48 KB; what the launch asks for, all that the device opts in to."""
    # eyalroz/gpu-kernel-runner#108; lattice/quda#1642
    launch: dict[str, Any] = {"block": ["block", "block"], "grid": ["ceil(N / block)", "ceil(M / block)"]}
    kernel = kernel_in(here, launch={**launch, declared: f"block * block * {bytes_each} * 4"})
    code = sweep(*kernel, "shape=40x50x60", "results_dir=out")
    (row,) = rows(here / "out")
    assert (row["status"], code) == (status, 0 if status == "ok" else 1)
    assert says in row["reason"]


def test_static_shared_memory_that_nobody_declared_is_found_by_the_build(here: Path) -> None:
    own = "large[(threadIdx.y * 64 + threadIdx.x) % 16384]"
    source = PRODUCT_CU.replace(
        "float sum = 0;", f"__shared__ volatile float large[16384]; {own} = 0; float sum = 0;"
    )
    source = source.replace("= sum;", f"= sum + {own};")
    assert sweep(*kernel_in(here, source=source), "shape=40x50x60", "results_dir=out") == 1
    (row,) = rows(here / "out")
    assert row["status"] in ("infeasible", "launch_error")
    assert "static shared memory 65536 B > 49152 B" in row["reason"]


def test_a_size_that_a_kernel_does_not_take_is_pruned_with_the_condition(here: Path) -> None:
    # NVIDIA/cutlass#1643
    kernel = kernel_in(here, requires={"conditions": ["K % 4 == 0"]})
    assert sweep("-m", *kernel, "shape=16x16x130,16x16x128", "results_dir=out") == 1
    odd, fits = rows(here / "out")
    assert (odd["status"], odd["reason"]) == ("infeasible", "requires K % 4 == 0: 2 != 0 (K = 130)")
    assert fits["status"] == "ok"


def test_a_grid_is_rounded_up_where_a_size_is_no_multiple_of_the_tile(here: Path) -> None:
    # CNugteren/CLBlast#381
    shape = "shape=16x500x64"
    assert sweep("kernel=tiled", "kernel.params.tile=16", shape, "results_dir=out") == 0
    (row,) = rows(here / "out")
    assert (row["blocks"], row["checked"]) == ("32", "8000")


def test_where_nothing_is_valid_one_line_gives_the_shared_reason(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("kernel=sample_block", "shape=16x500x64", "results_dir=out") == 1
    said = [line for line in capsys.readouterr().out.splitlines() if "no valid configuration" in line]
    assert len(said) == 1
    assert "M % block == 0 and N % block == 0 and K % block == 0" in said[0]
    assert len(rows(here / "out")) == 1


def test_where_every_configuration_fails_alike_they_are_one_line(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = PRODUCT_CU.replace("sum += A", "sum -= A")
    kernel = kernel_in(here, source=source, params={"block": [4, 8, 16]})
    assert sweep(*kernel, "shape=16x16x16", "results_dir=out") == 1
    out = capsys.readouterr().out
    assert "0 proved right and 3 failed" in out
    assert "3 × wrong_result at verify: 256 of 256 elements are wrong" in out


def test_a_problem_beyond_the_memory_is_a_row_and_the_next_job_passes(here: Path) -> None:
    """480 GB are refused by their number, whatever the machine has; nothing of them is allocated."""
    # triton-lang/triton#11174
    shapes = "shape=200000x200000x200000,64x64x64"
    assert sweep("-m", "kernel=tiled", "kernel.params.tile=16", shapes, "results_dir=out") == 1
    huge, small = rows(here / "out")
    assert (huge["status"], huge["stage"]) == ("out_of_memory", "load")
    assert "480.0 GB" in huge["reason"]
    assert huge["params"] == '{"tile": 16}'
    assert small["status"] == "ok"


def test_a_problem_that_only_this_machine_cannot_hold_is_proved_at_a_smaller_shape(here: Path) -> None:
    """The GPU that is assumed would hold these 172 GB; here they are counted, not allocated."""
    shape = "shape=120000x120000x120000"
    kernel = ["kernel=tiled", "kernel.params.tile=16", "backend.target=b200"]
    assert sweep(*kernel, shape, "results_dir=out") == 0
    (row,) = rows(here / "out")
    assert row["status"] == "ok"
    assert "172.8 GB, more than this machine has free" in row["check_note"]


def test_whole_numbers_written_as_fractions_are_whole(here: Path) -> None:
    # LouieYang/deep-photo-styletransfer-tf#8; numba/numba#1976
    launch = {"block": [16.0, 16], "grid": ["N / 16", "ceil(M / 16.0)"]}
    assert sweep(*kernel_in(here, params={}, launch=launch), "shape=40x64x8", "results_dir=out") == 0
    (row,) = rows(here / "out")
    assert (row["threads"], row["blocks"]) == ("256", "12")


@pytest.mark.parametrize(
    ("launch", "says"),
    [
        ({"block": [16.5, 16], "grid": [1]}, "launch.block[0]: 16.5 is not a whole number of at least 1"),
        ({"block": [0, 16], "grid": [1]}, "launch.block[0]: 0 is not a whole number of at least 1"),
        ({"block": [16, -4], "grid": [1]}, "launch.block[1]: -4 is not a whole number of at least 1"),
        ({"block": [16, 16], "grid": [0]}, "launch.grid[0]: 0 is not a whole number of at least 1"),
        ({"block": [16, 16, 1, 1], "grid": [1]}, "is not a list of one to three sizes"),
        (
            {"block": ["block", 4], "grid": ["M / block"]},
            "mine with block=16: grid x = M / block = 2.5 is not a whole number; use ceil_div(M, block)",
        ),
    ],
)
def test_a_launch_that_is_no_whole_number_is_an_error_before_anything_is_built(
    here: Path, launch: dict[str, Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # pjreddie/darknet#1791; chapel-lang/chapel#26153
    params = {"block": [8, 16]} if "block" in launch["block"] else {}
    assert sweep(*kernel_in(here, params=params, launch=launch), "shape=40x50x60", "results_dir=out") == 2
    assert says in capsys.readouterr().err
    assert not (here / "out" / "trials.csv").exists() or not rows(here / "out")


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (["shape=0x64x64"], 2, "shape.m = 0: a size is at least 1"),
        (["shape.k=-3"], 2, "shape.k = -3: a size is at least 1"),
        (["shape.n=0"], 2, "shape.n = 0: a size is at least 1"),
        (["kernel.params.tile=0"], 1, "1 <= block_x: 1 > 0"),
        (["kernel.params.tile=-8"], 1, "1 <= block_x: 1 > -8"),
    ],
)
def test_nothing_or_less_of_something_is_told_before_any_device_is_asked(
    here: Path, command: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("kernel=tiled", *command, "results_dir=out") == code
    captured = capsys.readouterr()
    assert says in captured.out + captured.err
    assert "division" not in captured.out + captured.err


def test_a_level_of_nothing_leaves_the_other_levels(here: Path) -> None:
    assert sweep("kernel=tiled", "kernel.params.tile=[0,16]", "shape=tiny", "results_dir=out") == 0
    assert [row["param_tile"] for row in rows(here / "out")] == ["16"]
