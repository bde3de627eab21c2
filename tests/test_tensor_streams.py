"""Tensor rungs 10 to 12: how work is cut for blocks that stay, and what their descriptions promise."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from bench_rig import Bench

from sweeper.check.compose import Composer
from sweeper.device import target
from sweeper.model import KernelSpec, Point
from sweeper.paths import kernels_dir
from sweeper.problem import resolve
from sweeper.resources.feasible import feasible_space
from sweeper.resources.geometry import launch_of, why_not_launchable

H200 = target("h200")
NAMES = ("wgmma_pingpong", "wgmma_stream_k", "wgmma_swapped")
CUT = ("wgmma_stream_k", "wgmma_swapped")
SHAPES = {
    "tiny": (8, 8, 8),
    "square": (1024, 1024, 1024),
    "large": (4096, 4096, 4096),
    "deep": (64, 64, 65536),
    "few_rows": (16, 4096, 4096),
    "some_rows": (128, 28672, 4096),
}

# Thread `unit` asks every worker for its pieces, and counts those that hold the unit. A piece that is at odds with
# the others of its tile counts a hundred.
DIVISION_CU = r"""
#include "division.cuh"
template <int SPLITS, int WAVES>
__global__ void hits(int* found, int tiles, int depth, int workers) {
  const int unit = blockIdx.x * blockDim.x + threadIdx.x;
  if (unit >= tiles * depth) return;
  int count = 0, parts = 0, seen = 0, next = 0;
  for (int worker = 0; worker < workers; ++worker) {
    streams::Work<SPLITS, WAVES> work(tiles, depth, worker, workers);
    streams::Piece piece;
    int turns = 0;
    while (work.next(piece)) {
      if (++turns > tiles || piece.from >= piece.to) { count += 100; break; }
      if (piece.tile != unit / depth) continue;
      if (piece.from <= unit % depth && unit % depth < piece.to) ++count;
      if (seen > 0 && parts != piece.parts) count += 100;
      if (piece.part != seen || piece.from != next) count += 100;
      if (piece.parts > 1) {
        for (int other = 0; other < piece.parts; ++other) {
          const int slot = streams::Work<SPLITS, WAVES>::slot_of(piece, other);
          if ((slot == piece.slot) != (other == piece.part)) count += 100;
          if (slot < 0 || slot >= (SPLITS > 0 ? tiles * SPLITS : 2 * workers)) count += 100;
        }
      }
      parts = piece.parts;
      next = piece.to;
      ++seen;
    }
  }
  found[unit] = seen == parts && next == depth ? count : 1000 + count;
}
"""
# A block adds up its share of what all parts have: of part p, quad q is (p + 1, q, p·q, 1).
SHARE_CU = r"""
#include "division.cuh"
template <int QUADS, int THREADS, int PARTS>
__global__ void added(float* found, int quads) {
  streams::add_share_at_once<QUADS, THREADS, PARTS>(
      blockIdx.x, [&](int part, int quad) { return make_float4(part + 1, quad, part * quad, 1); },
      [&](const float4& sum, int quad) {
        if (quad < quads) reinterpret_cast<float4*>(found)[quad] = sum;  // the emulator tries fewer, too
      });
}
"""
UNRAVEL_CU = """
#include "division.cuh"
__global__ void places(int* found, int rows, int width) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= rows * width) return;
  int row, within;
  streams::unravel(index, width, row, within);
  found[index] = row == index / width && within == index % width;
}
"""
REFERENCE = """
import numpy as np


def reference(tiles, depth):
    return np.ones(tiles * depth)
"""


def described(name: str) -> KernelSpec:
    with Composer() as composer:
        return composer.compose([f"kernel={name}"])[0]


def sizes(m: int, n: int, k: int) -> dict[str, int]:
    return {"M": m, "N": n, "K": k, "LDA": k, "LDB": n, "LDC": n}


def sample(spec: KernelSpec, dims: Mapping[str, int], most: int = 800) -> list[dict[str, Any]]:
    """Evenly spaced feasible points."""
    space = feasible_space(spec, dims, H200)
    return [space.point(row).params for row in range(0, len(space), max(1, len(space) // most))]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench("emulator", tmp_path_factory.mktemp("division"))
    shutil.copy(kernels_dir() / "gemm" / "tensor" / "division.cuh", made.folder)
    (made.folder / "division.py").write_text(REFERENCE)
    yield made
    made.close()


def division(bench: Bench) -> KernelSpec:
    scalars = ("tiles", "depth", "workers")
    return bench.load(
        "division",
        DIVISION_CU,
        entry="hits",
        dims=["TILES", "DEPTH", "WORKERS"],
        template=["splits", "waves"],
        params={"splits": [0, 1, 3, 4], "waves": [0, 1, 2]},
        launch={"block": [32], "grid": ["ceil(TILES * DEPTH / 32)"]},
        args=[
            {"name": "found", "shape": ["TILES * DEPTH"], "direction": "out", "dtype": "int32"},
            *({"name": name, "scalar": "int32", "value": name.upper()} for name in scalars),
        ],
        reference={"python": "division.py"},
    )


@pytest.mark.parametrize("width", [1, 2, 3, 8, 11, 64])
def test_tiles_are_laid_in_rows_of_any_width(bench: Bench, width: int) -> None:
    """By a shift where the width is a power of two, by a division where it is none."""
    scalars = ("rows", "width")
    counts = REFERENCE.replace("tiles, depth", "rows, width").replace("tiles * depth", "rows * width")
    (bench.folder / "places.py").write_text(counts)
    spec = bench.load(
        "places",
        UNRAVEL_CU,
        entry="places",
        dims=["ROWS", "WIDTH"],
        launch={"block": [32], "grid": ["ceil(ROWS * WIDTH / 32)"]},
        args=[
            {"name": "found", "shape": ["ROWS * WIDTH"], "direction": "out", "dtype": "int32"},
            *({"name": name, "scalar": "int32", "value": name.upper()} for name in scalars),
        ],
        reference={"python": "places.py"},
    )
    check = bench.measure(spec, {"ROWS": 7, "WIDTH": width}, {}).check
    assert check is not None
    assert check.passed


@pytest.mark.parametrize("waves", [0, 1, 2])
@pytest.mark.parametrize(
    ("tiles", "depth", "workers"),
    [(1, 1, 4), (1, 40, 4), (3, 7, 8), (7, 5, 7), (8, 5, 7), (23, 3, 7), (5, 16, 13), (64, 2, 6)],
)
def test_every_unit_of_the_line_belongs_to_exactly_one_worker(
    bench: Bench, tiles: int, depth: int, workers: int, waves: int
) -> None:
    """In the order of K from worker to worker, each part knowing where the others' sums lie."""
    dims = {"TILES": tiles, "DEPTH": depth, "WORKERS": workers}
    check = bench.measure(division(bench), dims, {"splits": 0, "waves": waves}).check
    assert check is not None
    assert check.passed


@pytest.mark.parametrize("splits", [1, 3, 4])
@pytest.mark.parametrize(("tiles", "depth"), [(1, 4), (5, 7), (3, 64)])
def test_a_split_tile_is_cut_into_parts_of_its_own(bench: Bench, tiles: int, depth: int, splits: int) -> None:
    dims = {"TILES": tiles, "DEPTH": depth, "WORKERS": tiles * splits}
    check = bench.measure(division(bench), dims, {"splits": splits, "waves": 0}).check
    assert check is not None
    assert check.passed


@pytest.mark.parametrize("parts", [2, 3, 7, 14])
@pytest.mark.parametrize(("quads", "threads"), [(1024, 128), (512, 256), (96, 32), (256, 32)])
def test_parts_that_add_up_shares_at_once_add_up_all_of_them_once(
    bench: Bench, quads: int, threads: int, parts: int
) -> None:
    """Whether shares are equal or not, of fewer quads than there are threads or of more."""
    (bench.folder / "added.py").write_text(
        "import numpy as np\n\n\ndef reference(quads):\n"
        f"    parts, quad = {parts}, np.arange(quads)\n"
        "    below = parts * (parts - 1) // 2\n"
        "    sums = [quad * 0 + below + parts, quad * parts, quad * below, quad * 0 + parts]\n"
        "    return np.stack(sums, axis=1).ravel()\n"
    )
    spec = bench.load(
        "added",
        SHARE_CU,
        entry="added",
        dims=["QUADS"],
        template=["quads", "threads", "parts"],
        params={"quads": [quads], "threads": [threads], "parts": [parts]},
        launch={"block": ["threads"], "grid": ["parts"]},
        args=[
            {"name": "found", "shape": ["QUADS * 4"], "direction": "out", "dtype": "float32"},
            {"name": "quads", "scalar": "int32", "value": "QUADS"},
        ],
        reference={"python": "added.py"},
    )
    check = bench.measure(spec, {"QUADS": quads}).check
    assert check is not None
    assert check.passed


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_configuration_can_be_launched(name: str, shape: str) -> None:
    spec, dims = described(name), sizes(*SHAPES[shape])
    for params in sample(spec, dims):
        launch = launch_of(spec, spec.default_point.of(params), dims, H200)
        assert why_not_launchable(launch, H200) is None, params
        assert launch.shared_bytes <= H200.max_shared_bytes, params


@pytest.mark.parametrize("name", NAMES)
def test_the_default_configuration_is_feasible(name: str) -> None:
    dims = sizes(64 if name == "wgmma_swapped" else 4096, 4096, 4096)
    spec = described(name)
    assert feasible_space(spec, dims, H200).why_infeasible(spec.default_point) is None


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("shape", ["square", "deep", "few_rows", "some_rows"])
def test_blocks_that_wait_for_each_other_all_run_at_once(name: str, shape: str) -> None:
    """Unless the parts of a tile are a cluster, which runs at once by itself. Clusters of four or eight do not reach
    all multiprocessors of an H200: 30 and 15 of them fit.
    """
    spec, dims = described(name), sizes(*SHAPES[shape])
    for params in sample(spec, dims):
        if params["splits"] == 1 or params["together"] in (1, 2):
            continue
        launch = launch_of(spec, spec.default_point.of(params), dims, H200)
        reached = 120 if params["together"] else H200.sm_count
        assert launch.grid[0] <= reached * params["blocks"], params
        assert params["blocks"] * (launch.shared_bytes + 1024) <= H200.max_shared_bytes + 1024, params


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("shape", ["tiny", "square", "deep", "few_rows"])
def test_no_part_of_a_tile_is_empty(name: str, shape: str) -> None:
    spec, dims = described(name), sizes(*SHAPES[shape])
    for params in sample(spec, dims):
        assert params["splits"] <= -(-dims["K"] // params.get("bk", 64)), params


def test_sums_that_pass_through_shared_memory_fit_there() -> None:
    """Where the tiles were, or beside them: then each block gets its columns from the others, whole slabs of 64 where
    all parts of a tile are one cluster.
    """
    spec, square, deep = described("wgmma_stream_k"), sizes(512, 512, 512), sizes(128, 128, 8192)
    seen = set()
    for dims, params in [(d, one) for d in (square, deep) for one in sample(spec, d, most=4000)]:
        together, bm, bn, splits = params["together"], params["bm"], params["bn"], params["splits"]
        seen.add(together)
        if not together:
            continue
        ring = params["stages"] * (bm + bn) * params["bk"] * 2
        party = splits if together < 3 else together
        assert party * params["cluster_m"] * params["cluster_n"] <= 8, params
        if together == 1:
            assert bm * (bn + 8) * 4 <= ring, params
        else:
            assert bn % ((64 if together == 2 else 8) * party) == 0, params
            needed = ring + params["consumers"] * 8192 + bm * bn * 4 * (party - 1) // party
            launch = launch_of(spec, spec.default_point.of(params), dims, H200)
            assert needed < launch.shared_bytes <= H200.max_shared_bytes, params
    assert seen == {0, 1, 2, 4, 8}


def test_clusters_that_add_up_first_leave_the_workspace_a_fraction() -> None:
    """Each block the columns that it has of its cluster's sum, counted apart from those of the others in it."""
    spec, dims = described("wgmma_stream_k"), sizes(*SHAPES["deep"])
    alone = {"bm": 64, "bn": 64, "consumers": 1, "stages": 4, "splits": 64, "waves": 0}
    space = feasible_space(spec, dims, H200)
    rooms = {}
    for together in (0, 4, 8):
        point = Point.of({**spec.default_point.params, **alone, "together": together})
        assert space.why_infeasible(point) is None
        rooms[together] = {a.name: a.size for a in resolve(spec, dims, point, seed=0).scratch}
        assert launch_of(spec, point, dims, H200).cluster == ((together or 1), 1, 1)
    for together in (4, 8):
        assert rooms[together]["partial"] * together == rooms[0]["partial"] == 64 * 64 * 64
        assert rooms[together]["arrived"] == together * rooms[0]["arrived"]


@pytest.mark.parametrize("name", ["wgmma_stream_k", "wgmma_pingpong"])
def test_rows_that_tma_cannot_read_are_copied_by_blocks_that_all_run_at_once(name: str) -> None:
    spec, dims = described(name), sizes(1023, 1023, 1023)
    points = sample(spec, dims)
    assert len(points) > 50
    for params in points:
        launch = launch_of(spec, spec.default_point.of(params), dims, H200)
        assert launch.grid[0] <= H200.sm_count * params.get("blocks", 1), params
        assert not params.get("together"), params


def test_slabs_leave_through_the_ring_only_where_it_has_a_place_for_each() -> None:
    """After a block's one tile: a stage holds 64 rows of 128 bytes that only the slab's own warpgroup read."""
    for params in sample(described("wgmma_stream_k"), sizes(*SHAPES["square"]), most=4000):
        if params["store"] == 3:
            assert params["splits"] == 1, params
            assert params["stages"] * params["bk"] >= params["bn"], params
    seen = set()
    for params in sample(described("wgmma_swapped"), sizes(*SHAPES["square"]), most=4000):
        if params["store"] == 3:
            rows = params["rows"]
            slab = rows // 4 if rows > 128 and rows % 32 == 0 else rows // 2 if rows > 64 else rows
            seen.add(rows)
            assert params["splits"] == 1, params
            assert slab <= 64, params
            assert rows // slab <= params["stages"], params
    assert {64, 96, 128, 192} <= seen
    for params in sample(described("wgmma_pingpong"), sizes(*SHAPES["square"]), most=4000):
        ring = params["stages"] * params["bk"] * (params["bm"] + params["bn"]) * 2
        assert params["store"] < 3 or params["bm"] * params["bn"] * 2 <= ring, params


@pytest.mark.parametrize("name", NAMES)
def test_blocks_fetch_ahead_of_their_cluster_no_more_than_the_ring_holds(name: str) -> None:
    """And only where there is something to meet for: with pieces of several tiles it would take too many registers."""
    ahead = [
        params for params in sample(described(name), sizes(*SHAPES["square"]), most=4000) if params["ahead"]
    ]
    assert ahead
    for params in ahead:
        assert params["ahead"] <= params["stages"], params
        assert name == "wgmma_pingpong" or params["splits"] > 0, params
        cluster = params.get("cluster", params.get("cluster_m", 1) * params.get("cluster_n", 1))
        assert name == "wgmma_pingpong" or cluster > 1, params


def test_few_rows_get_the_fewest_columns_of_a_product_that_hold_them() -> None:
    spec = described("wgmma_swapped")
    for rows in (1, 8, 9, 16, 33, 64, 100):
        levels = {p["rows"] for p in sample(spec, sizes(rows, 4096, 4096), most=4000)}
        assert min(level for level in levels if level >= rows) < rows + 16, rows
        assert max(levels) < rows + 24, rows


@pytest.mark.parametrize("shape", ["square", "deep", "few_rows", "some_rows"])
def test_consumers_ask_for_no_more_registers_than_their_block_has(shape: str) -> None:
    """setmaxnreg waits until its block has them, and no other block gives any: on an H200 it never ended."""
    spec, dims = described("wgmma_swapped"), sizes(*SHAPES[shape])
    seen = set()
    for params in sample(spec, dims, most=4000):
        blocks, consumers = params["blocks"], params["consumers"]
        seen.add((blocks, consumers))
        begins_with = 65536 // ((consumers + 1) * 128 * blocks) // 8 * 8
        wanted = min((512 // blocks - 40) // consumers // 8 * 8, 240)
        assert 40 + consumers * wanted <= (consumers + 1) * begins_with, params
    assert seen == {(1, 1), (1, 2), (1, 3), (2, 1)}


def test_every_rung_names_what_it_adds() -> None:
    for path in sorted((kernels_dir() / "gemm" / "tensor").glob("1[0-2]_wgmma_*.cu")):
        first = Path(path).read_text(encoding="utf-8").splitlines()[0]
        assert re.match(r"// Rung 1[0-2]: .+\.$", first), path.name
