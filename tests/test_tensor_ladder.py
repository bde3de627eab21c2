"""The ladder of warpgroup products: its descriptions, its spaces, and the order in which it walks through tiles."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from bench_rig import Bench

from sweeper.check.compose import Composer
from sweeper.device import target
from sweeper.errors import NoValidConfiguration, TrialFailed
from sweeper.model import KernelSpec
from sweeper.paths import kernels_dir
from sweeper.problem import Problem, resolve
from sweeper.resources.feasible import feasible_space
from sweeper.resources.geometry import launch_of, why_not_launchable

H200 = target("h200")
RUNGS = ("wgmma", "wgmma_specialised", "wgmma_persistent")
LAYOUTS = ("nn", "nt", "tn", "tt")
SHAPES = [(4096, 4096, 4096), (1000, 1000, 1000), (64, 64, 65536), (8, 8, 8)]
ODD = [(4097, 4097, 4097), (1, 1, 1), (4096, 4096, 4100), (1023, 8, 77)]


def described(name: str, *changes: str) -> KernelSpec:
    with Composer() as composer:
        return composer.compose([f"kernel={name}", *changes])[0]


def problem(spec: KernelSpec, shape: tuple[int, int, int], **given: int) -> Problem:
    return resolve(spec, {**dict(zip("MNK", shape, strict=True)), **given}, spec.default_point, seed=1)


def sample(spec: KernelSpec, sizes: Mapping[str, int], most: int = 1500) -> list[dict[str, Any]]:
    """Evenly spaced feasible points."""
    space = feasible_space(spec, sizes, H200)
    return [space.point(row).params for row in range(0, len(space), max(1, len(space) // most))]


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_configuration_of_a_rung_can_be_launched(
    name: str, dtype: str, shape: tuple[int, int, int]
) -> None:
    spec = described(name, f"++kernel.dtype={dtype}")
    sizes = problem(spec, shape).dims
    points = sample(spec, sizes)
    assert len(points) > 50
    for params in points:
        launch = launch_of(spec, spec.default_point.of(params), sizes, H200)
        assert why_not_launchable(launch, H200) is None, params


@pytest.mark.parametrize("name", RUNGS)
def test_the_default_configuration_is_feasible(name: str) -> None:
    spec = described(name)
    space = feasible_space(spec, problem(spec, SHAPES[0]).dims, H200)
    assert space.why_infeasible(spec.default_point) is None


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", ODD)
def test_the_persistent_rung_takes_every_leading_dimension_in_every_layout(
    layout: str, shape: tuple[int, int, int]
) -> None:
    spec = described("wgmma_persistent", f"++kernel.layout={layout}")
    assert len(feasible_space(spec, problem(spec, shape).dims, H200)) > 1000


@pytest.mark.parametrize("name", RUNGS[:2])
def test_the_first_rungs_say_which_rows_tma_cannot_read(name: str) -> None:
    spec = described(name)
    with pytest.raises(NoValidConfiguration, match=r"LDB \* 2 % 16 == 0: 2 != 0 \(LDB = 4097\)"):
        feasible_space(spec, problem(spec, (4096, 4097, 4096)).dims, H200)


def test_only_operands_that_tma_cannot_read_have_a_copy() -> None:
    spec = described("wgmma_persistent")

    def copied(shape: tuple[int, int, int], **given: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        arrays = {a.name: a.shape for a in problem(spec, shape, **given).args if hasattr(a, "shape")}
        return arrays["a_copy"], arrays["b_copy"]

    assert copied((512, 512, 512)) == ((0, 512), (0, 512))
    assert copied((512, 512, 500)) == ((512, 504), (0, 512))
    assert copied((512, 500, 512)) == ((0, 512), (512, 504))
    assert copied((512, 500, 512), LDB=504) == ((0, 512), (0, 504))
    assert copied((77, 78, 79)) == ((77, 80), (79, 80))


def test_blocks_that_wait_for_each_other_all_run_at_once() -> None:
    """Copies end in a meeting of the grid: no configuration has more blocks than multiprocessors hold."""
    spec = described("wgmma_persistent")
    sizes = problem(spec, (8191, 8191, 8191)).dims
    for params in sample(spec, sizes):
        launch = launch_of(spec, spec.default_point.of(params), sizes, H200)
        assert launch.blocks <= H200.sm_count * params["blocks"]
        assert params["blocks"] * (launch.shared_bytes + 1024) <= H200.max_shared_bytes + 1024
        assert params["cluster_m"] * params["cluster_n"] <= 2  # of four, some multiprocessors would have none


@pytest.mark.parametrize(("layout", "slice_bytes"), [("nn", 4 * 64 * 128), ("nt", 224 * 128)])
def test_columns_that_end_within_a_slice_have_room_for_the_whole_of_it(layout: str, slice_bytes: int) -> None:
    """224 columns of B come as four slices of 64 where rows run along N, and as 224 rows where they run along K."""
    spec = described("wgmma_persistent", f"++kernel.layout={layout}")
    sizes = problem(spec, (5000, 5000, 5000)).dims
    point = spec.default_point.of({**spec.default_point.params, "bn": 224})
    assert feasible_space(spec, sizes, H200).why_infeasible(point) is None
    launch = launch_of(spec, point, sizes, H200)
    assert launch.shared_bytes == 4 * (128 * 128 + slice_bytes) + 2 * 8192 + 4 * 16
    assert launch.grid[0] == 132


WALK_CU = """
#include "tile_order.cuh"
template <int GROUP, int ORDER>
__global__ void walk(int* visited, int* jumps, int rows, int columns) {
  const int tile = blockIdx.x * blockDim.x + threadIdx.x;
  if (tile >= rows * columns) return;
  int row, column, last_row, last_column;
  tile_order::locate<GROUP, ORDER>(tile, rows, columns, row, column);
  tile_order::locate<GROUP, ORDER>(tile > 0 ? tile - 1 : 0, rows, columns, last_row, last_column);
  visited[row * columns + column] = 1;
  const bool new_band = tile % (GROUP * columns) == 0;
  jumps[tile] = !new_band && abs(row - last_row) + abs(column - last_column) != 1;
}
"""
WALK_PY = """
import numpy as np

def reference(rows, columns):
    return {"visited": np.ones((rows, columns)), "jumps": np.zeros(rows * columns)}
"""
WALK: dict[str, Any] = {
    "entry": "walk",
    "template": ["GROUP", "ORDER"],
    "dims": ["ROWS", "COLUMNS"],
    "params": {"GROUP": [1, 2, 4, 8, 16], "ORDER": [0, 1, 2]},
    "launch": {"block": [64], "grid": ["ceil(ROWS * COLUMNS / 64)"]},
    "args": [
        {"name": "visited", "shape": ["ROWS", "COLUMNS"], "direction": "out", "dtype": "int32"},
        {"name": "jumps", "shape": ["ROWS * COLUMNS"], "direction": "out", "dtype": "int32"},
        {"name": "rows", "scalar": "int32", "value": "ROWS"},
        {"name": "columns", "scalar": "int32", "value": "COLUMNS"},
    ],
    "reference": {"python": "walk.py"},
}


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench("emulator", tmp_path_factory.mktemp("order"))
    shutil.copy(kernels_dir() / "gemm" / "tensor" / "tile_order.cuh", made.folder)
    (made.folder / "walk.py").write_text(WALK_PY)
    yield made
    made.close()


@pytest.mark.parametrize("group", [1, 4, 8])
@pytest.mark.parametrize("sizes", [(1, 1), (8, 24), (13, 5), (5, 37)], ids=str)
def test_every_order_comes_to_every_tile(emulator: Bench, group: int, sizes: tuple[int, int]) -> None:
    """As many tiles as there are places: where every place was visited, none was twice."""
    source = WALK_CU.replace("!new_band &&", "false &&")
    spec = emulator.load("walk", source, **WALK)
    for order in (0, 1, 2):
        dims = dict(zip(("ROWS", "COLUMNS"), sizes, strict=True))
        outcome = emulator.measure(spec, dims, {"GROUP": group, "ORDER": order})
        assert outcome.check is not None
        assert outcome.check.passed, order


@pytest.mark.parametrize("group", [2, 4, 16])
def test_hilberts_curve_goes_from_neighbour_to_neighbour(emulator: Bench, group: int) -> None:
    spec = emulator.load("walk", WALK_CU, **WALK)
    outcome = emulator.measure(spec, {"ROWS": 2 * group, "COLUMNS": 3 * group}, {"GROUP": group, "ORDER": 2})
    assert outcome.check is not None
    assert outcome.check.passed


def test_bands_jump_back_after_each_column(emulator: Bench) -> None:
    """What the last test would not let pass: so it can fail."""
    spec = emulator.load("walk", WALK_CU, **WALK)
    with pytest.raises(TrialFailed, match="jumps"):
        emulator.measure(spec, {"ROWS": 8, "COLUMNS": 12}, {"GROUP": 4, "ORDER": 0})
