"""What a command says of kernels that compute something wrong, or cannot compute anything right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench_rig import matrices, sizes
from command_rig import PRODUCT_CU, TILED_CU, kernel_in, rows, sweep

TILES = {"params": {"TILE": [16]}, "args": [*matrices(), *sizes(*"MNK")]}
GRID = ["ceil(N / TILE)", "ceil(M / TILE)"]


def test_one_element_that_is_not_a_number_keeps_a_configuration_out_of_the_ranking(here: Path) -> None:
    # siboehm/SGEMM_CUDA#20
    source = PRODUCT_CU.replace("C[i * N + j] = sum;", "C[i * N + j] = i == 5 && j == 6 ? NAN : sum;")
    kernel = kernel_in(here, source=source)
    assert sweep(*kernel, "shape=64x64x64", "results_dir=out") == 1
    (row,) = rows(here / "out")
    assert (row["status"], row["wrong"], row["checked"]) == ("wrong_result", "1", str(64 * 64))
    assert "C[5, 6] = nan" in row["reason"]
    assert row["gflops"] == row["time_ms"] == ""
    assert rows(here / "out", "best.csv") == []


def test_a_kernel_that_writes_nothing_does_not_live_on_the_results_of_the_one_before(here: Path) -> None:
    # triton-lang/triton#9230
    source = PRODUCT_CU.replace("if (i >= M", "if (NOTHING || i >= M")
    kernel = kernel_in(here, source=source, params={"block": [16], "NOTHING": [0, 1]})
    assert sweep(*kernel, "search=grid", "shape=64x64x64", "results_dir=out") == 0
    statuses = {row["param_NOTHING"]: row["status"] for row in rows(here / "out")}
    assert statuses == {"0": "ok", "1": "wrong_result"}
    assert [row["param_NOTHING"] for row in rows(here / "out", "best.csv")] == ["0"]


@pytest.mark.parametrize(
    ("block", "tiles", "says"),
    [
        ([8, 8], [16], "TILE = 16 elements apart, but launch.block[0] = 8 gives a block 8 threads along x"),
        (["TILE", 8], [16], "launch.block[1] = 8 gives a block 8 threads along y: they would leave holes"),
        (["TILE // 2", "TILE"], [16], "launch.block[0] = TILE // 2 gives a block 8 threads"),
        ([16, 16], [8, 16, 32], "TILE = 8 elements apart, but launch.block[0] = 16"),
        ([32, 32], [16], "they would overlap"),
    ],
)
def test_a_block_that_does_not_follow_the_tile_is_refused_before_any_launch(
    here: Path, block: list[Any], tiles: list[int], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # tugot17/pmpp#25
    kernel = kernel_in(
        here, source=TILED_CU, **{**TILES, "params": {"TILE": tiles}}, launch={"block": block, "grid": GRID}
    )
    assert sweep(*kernel, "shape=40x50x60", "results_dir=out") == 2
    assert says in capsys.readouterr().err
    assert not (here / "out").exists()


def test_a_block_of_numbers_is_fine_where_they_are_the_tiles(here: Path) -> None:
    kernel = kernel_in(here, source=TILED_CU, **TILES, launch={"block": [16, 16], "grid": GRID})
    assert sweep(*kernel, "shape=40x50x60", "results_dir=out") == 0


@pytest.mark.parametrize(
    ("place", "argument", "says"),
    [
        (
            2,
            {"name": "alpha", "scalar": "int32", "value": 2},
            "argument 3 (alpha) is float, the description's",
        ),
        (2, {"name": "alpha", "scalar": "float64", "value": 2.0}, "alpha is double"),
        (2, {"name": "alpha", "value": 2.0}, "add scalar: float32, int32 … to alpha"),
        (2, {"name": "alpha", "scalar": "float32", "value": "half"}, "unknown name 'half'"),
        (2, 2.0, "2.0 is not a mapping"),
        (3, {"name": "n", "scalar": "int32", "value": "N + 0.5"}, "not a whole number, but declared int32"),
        (3, {"name": "n", "scalar": "int32", "value": "N * 10000000"}, "beyond int32"),
        (3, {"name": "n", "scalar": "int64", "value": "N"}, "argument 4 (n) is int, the description's n is"),
        (
            0,
            {"name": "x", "shape": ["N"], "dtype": "float64"},
            "argument 1 (x) is float, the description's x is",
        ),
    ],
)
def test_an_argument_that_the_kernel_would_misread_is_an_error(
    here: Path, place: int, argument: Any, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # cupy/cupy#8485; numba/numba#7478; llmsystem/llmsys_hw1#10
    assert sweep(*saxpy_in(here, {place: argument}), "results_dir=out") == 2
    assert says in capsys.readouterr().err
    assert not (here / "out").exists()


@pytest.mark.parametrize("value", [2, 2.0, "5 / 2", "N / 400"])
def test_a_scalar_is_cast_to_the_type_that_it_declares(here: Path, value: Any) -> None:
    alpha = {"name": "alpha", "scalar": "float32", "value": value}
    assert sweep(*saxpy_in(here, {2: alpha}), "results_dir=out") == 0


def saxpy_in(folder: Path, changes: dict[int, Any]) -> list[str]:
    """y = alpha·x + y, with some of its arguments replaced."""
    source = """extern "C" __global__ void saxpy(const float* x, float* y, float alpha, int n) {
      const int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) y[i] = alpha * x[i] + y[i];
    }"""
    arguments: list[Any] = [
        {"name": "x", "shape": ["N"]},
        {"name": "y", "shape": ["N"], "direction": "inout"},
        {"name": "alpha", "scalar": "float32", "value": 2.5},
        {"name": "n", "scalar": "int32", "value": "N"},
    ]
    for place, argument in changes.items():
        arguments[place] = argument
    (folder / "saxpy.py").write_text("def reference(x, y, alpha, n):\n    return alpha * x + y\n")
    return kernel_in(
        folder,
        source=source,
        entry="saxpy",
        dims={"N": 1000},
        params={"block": [64]},
        launch={"block": ["block"], "grid": ["ceil(N / block)"]},
        args=arguments,
        reference={"python": "saxpy.py"},
    )
