"""On a GPU with TMA: rung 11 is right at every edge, with any alignment, however its work is dealt out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from bench_rig import Bench, no_gpu

from sweeper.backend.base import MeasureProtocol

pytestmark = pytest.mark.skipif(no_gpu(), reason="no GPU, or no PyCUDA")

# Every way to share k among warps, tiles from the smallest to the largest, both depths of a stage.
TILES: dict[str, dict[str, Any]] = {
    "64x64": {"bm": 64, "bn": 64, "bk": 32, "wm": 64, "wn": 64, "wk": 8, "stages": 4, "group": 1},
    "64x128": {"bm": 64, "bn": 128, "bk": 16, "wm": 64, "wn": 64, "wk": 4, "stages": 8, "group": 8},
    "128x128": {"bm": 128, "bn": 128, "bk": 64, "wm": 64, "wn": 64, "wk": 2, "stages": 3, "group": 4},
    "128x256": {"bm": 128, "bn": 256, "bk": 32, "wm": 64, "wn": 64, "wk": 1, "stages": 4, "group": 8},
    "256x32": {"bm": 256, "bn": 32, "bk": 32, "wm": 128, "wn": 32, "wk": 4, "stages": 4, "group": 8},
    "192x192": {"bm": 192, "bn": 192, "bk": 16, "wm": 96, "wn": 48, "wk": 1, "stages": 6, "group": 8},
    "96x96": {"bm": 96, "bn": 96, "bk": 32, "wm": 96, "wn": 48, "wk": 4, "stages": 4, "group": 8},
}
# Sizes that are multiples of nothing: rows of A, of B and of both are copied; where they are given, some are not.
EDGES = [
    {"M": 1, "N": 1, "K": 1},
    {"M": 3, "N": 5, "K": 2},
    {"M": 31, "N": 33, "K": 17},
    {"M": 3, "N": 3, "K": 431},
    {"M": 257, "N": 129, "K": 1031},
    {"M": 130, "N": 68, "K": 517, "LDB": 68},
    {"M": 70, "N": 133, "K": 256},
    {"M": 77, "N": 61, "K": 45, "LDA": 51, "LDB": 65, "LDC": 67},
    {"M": 77, "N": 60, "K": 44, "LDA": 48, "LDB": 64, "LDC": 61},
    {"M": 300, "N": 515, "K": 100, "LDB": 516, "LDC": 517},
]
# A few parts a tile, a tile for many blocks, tiles left over after one and after many rounds of whole ones.
DEALT = [
    ({"M": 64, "N": 64, "K": 65536}, [1, 2]),
    ({"M": 128, "N": 4096, "K": 1000}, [0, 1, 2]),
    ({"M": 1025, "N": 1025, "K": 1025}, [0, 2, 3]),
    ({"M": 2047, "N": 1999, "K": 333}, [0, 2, 3, 4]),
]
MANY_LAUNCHES = MeasureProtocol(
    warmup_ms=1.0, min_samples=40, max_samples=40, max_seconds=1.0, deadline_s=20.0
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench("cuda", tmp_path_factory.mktemp("kernels"))
    if made.target.cc != (9, 0):
        made.close()
        pytest.skip("TMA kernels are written for compute capability 9.0")
    yield made
    made.close()


def prove(bench: Bench, dims: Mapping[str, int], params: Mapping[str, Any]) -> None:
    outcome = bench.measure(bench.shipped("stream_k"), dims, params)
    assert outcome.check is not None
    assert outcome.check.passed, (dims, params)
    assert outcome.build is not None
    assert outcome.build.local_bytes == 0, params


@pytest.mark.parametrize("tile", TILES)
def test_any_size_and_any_alignment(bench: Bench, tile: str) -> None:
    for dims in EDGES:
        prove(bench, dims, {**TILES[tile], "stream": 2, "parts": 1})


@pytest.mark.parametrize(
    ("dims", "streams"), DEALT, ids=lambda v: "x".join(map(str, getattr(v, "values", list)()))
)
def test_work_may_be_dealt_out_in_any_way(bench: Bench, dims: dict[str, int], streams: list[int]) -> None:
    """Tiles that several blocks have parts of come from the workspace, and each launch finds it as the first did."""
    for tile in ("64x64", "64x128"):
        for stream in streams:
            tiles = -(-dims["M"] // TILES[tile]["bm"]) * -(-dims["N"] // TILES[tile]["bn"])
            if stream == 1 and 2 * tiles > bench.target.sm_count:
                continue
            prove(bench, dims, {**TILES[tile], "stream": stream, "parts": 1})


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_a_tile_may_be_divided_among_a_cluster(bench: Bench, parts: int) -> None:
    """Its sums are read from the other blocks' shared memory: as many parts of k, or one more block of it."""
    for dims in ({"M": 64, "N": 128, "K": 256}, {"M": 131, "N": 196, "K": 292}, {"M": 1, "N": 4, "K": 516}):
        for tile in ("64x64", "64x128", "192x192"):
            prove(bench, dims, {**TILES[tile], "stream": 0, "parts": parts})


def test_the_next_launch_finds_the_workspace_in_order(bench: Bench) -> None:
    """Verified after many launches too: blocks that met leave the word that they met by as they found it."""
    dims = {"M": 193, "N": 321, "K": 4097}
    params = {**TILES["64x64"], "stream": 2, "parts": 1}
    outcome = bench.measure(bench.shipped("stream_k"), dims, params, MANY_LAUNCHES)
    assert outcome.check is not None
    assert outcome.check.passed


def test_more_elements_than_31_bits_count(bench: Bench) -> None:
    """Offsets of elements are 64 bits wide wherever they have to be."""
    dims = {"M": 65536, "N": 32800, "K": 8}
    prove(bench, dims, {**TILES["128x256"], "stream": 0, "parts": 1})
