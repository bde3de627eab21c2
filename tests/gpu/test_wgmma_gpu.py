"""On a GPU with warpgroup products: every rung of the Hopper ladder is right at edges, and so is each of its ways."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from bench_rig import Bench, no_gpu

from sweeper.build.source import translation_unit
from sweeper.kernel import description as kernel
from sweeper.model import KernelSpec, Point
from sweeper.paths import conf_dir

pytestmark = pytest.mark.skipif(no_gpu(), reason="no GPU, or no PyCUDA")

# One tile exactly, one element, sizes below and just above every tile, more tiles than blocks, gaps between rows.
ALIGNED = [
    {"M": 128, "N": 256, "K": 64},
    {"M": 1, "N": 8, "K": 8},
    {"M": 129, "N": 264, "K": 520},
    {"M": 1, "N": 1, "K": 1, "LDA": 8, "LDB": 8},
    {"M": 31, "N": 33, "K": 17, "LDA": 24, "LDB": 40},
    {"M": 3, "N": 3, "K": 431, "LDA": 432, "LDB": 8, "LDC": 5},
    {"M": 200, "N": 500, "K": 72, "LDA": 80, "LDB": 512, "LDC": 503},
    {"M": 2600, "N": 2504, "K": 456},
]
# Rows that begin anywhere: of A, of B, of C, of all.
ODD = [
    {"M": 1, "N": 1, "K": 1},
    {"M": 31, "N": 33, "K": 17},
    {"M": 3, "N": 3, "K": 431},
    {"M": 129, "N": 257, "K": 520},
    {"M": 257, "N": 136, "K": 129},
    {"M": 140, "N": 72, "K": 100, "LDA": 101, "LDB": 75, "LDC": 73},
    {"M": 1023, "N": 1023, "K": 1023},
    {"M": 2049, "N": 2601, "K": 68},
]
TRANSPOSED = [
    {"M": 128, "N": 256, "K": 64},
    {"M": 136, "N": 264, "K": 520},
    {"M": 257, "N": 135, "K": 129},
    {"M": 2600, "N": 2504, "K": 456},
]
LAID: list[dict[str, int]] = [
    {},
    {"bm": 256, "bn": 128, "cluster_m": 2},
    {"bm": 128, "bn": 128, "bk": 128, "stages": 3, "cluster_n": 2, "order": 2},
    {"bm": 192, "bn": 192, "consumers": 3, "buffers": 1},
    {"bn": 224, "cluster_m": 2, "defer": 1},
]
# What the points below differ from.
BASE = {
    "bm": 128,
    "bn": 256,
    "bk": 64,
    "consumers": 2,
    "stages": 4,
    "cluster_m": 1,
    "cluster_n": 1,
    "group": 8,
}
BASE |= {"order": 0, "store": 2, "buffers": 2, "defer": 0, "hint": 0, "blocks": 1}
PERSISTENT: list[dict[str, int]] = [
    {},
    {"cluster_m": 2},
    {"cluster_n": 2, "order": 1, "defer": 1},
    {"bm": 256, "bn": 128, "cluster_m": 2, "order": 2, "group": 4},
    {"bm": 256, "bn": 192, "stages": 3, "buffers": 1, "hint": 1},
    {"bm": 192, "bn": 192, "consumers": 3, "stages": 3, "buffers": 1, "hint": 3, "cluster_n": 2},
    {"bm": 64, "bn": 256, "consumers": 1, "buffers": 4, "hint": 2, "defer": 1},
    {"bm": 64, "bn": 64, "consumers": 1, "buffers": 1, "stages": 6, "bk": 128, "order": 2, "group": 16},
    {"bm": 128, "bn": 128, "consumers": 1, "blocks": 2, "stages": 3},
    {"bm": 128, "bn": 128, "bk": 128, "stages": 3, "cluster_m": 2},
    {"bn": 224, "cluster_m": 2, "defer": 1, "buffers": 1},
    {"bn": 224, "cluster_n": 2},
    {"bm": 64, "bn": 96, "consumers": 1, "stages": 6},
    {"bm": 256, "bn": 160, "stages": 3, "cluster_n": 2, "buffers": 1},
    {"bn": 224, "store": 1, "buffers": 1},
    {"bn": 224, "store": 0, "buffers": 1},
    {"store": 1, "buffers": 1},
    {"store": 0, "buffers": 1, "cluster_m": 2},
    {"store": 0, "buffers": 1, "bm": 64, "bn": 128, "consumers": 1},
]
SIMPLE = {
    "wgmma": [
        {"bm": 128, "bn": 128, "stages": 3},
        {"bm": 64, "bn": 256, "stages": 4},
        {"bm": 192, "bn": 192, "stages": 2},
        {"bm": 256, "bn": 64, "stages": 3},
    ],
    "wgmma_specialised": [
        {"bm": 128, "bn": 256, "consumers": 2, "stages": 4},
        {"bm": 64, "bn": 64, "consumers": 1, "stages": 8},
        {"bm": 192, "bn": 192, "consumers": 3, "stages": 4},
        {"bm": 256, "bn": 128, "consumers": 2, "stages": 2},
    ],
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench("cuda", tmp_path_factory.mktemp("kernels"))
    if made.target.cc != (9, 0):
        made.close()
        pytest.skip("wgmma is compute capability 9.0's")
    yield made
    made.close()


def require_right(
    bench: Bench, spec: KernelSpec, shapes: Sequence[Mapping[str, int]], points: Sequence[Mapping[str, int]]
) -> None:
    """Every point at every shape; built side by side first."""
    base = BASE if spec.name == "wgmma_persistent" else {}
    chosen = [{**base, **changes} for changes in points]
    with ThreadPoolExecutor(8) as pool:
        units = [translation_unit(spec, Point.of(params)) for params in chosen]
        list(pool.map(lambda unit: bench.builder.build(unit, arch=bench.target.arch, deadline_s=120), units))
    for dims in shapes:
        for params in chosen:
            outcome = bench.measure(spec, dims, params)
            assert outcome.check is not None
            assert outcome.check.passed, (dims, params)
            assert outcome.build is not None
            assert outcome.build.local_bytes == 0, params


def persistent(bench: Bench, layout: str) -> KernelSpec:
    node = json.loads(bench.shipped("wgmma_persistent", "bfloat16").node_json)
    return kernel.load({**node, "layout": layout}, conf_dir() / "kernel" / "wgmma_persistent.yaml")


def named(dims: Mapping[str, int]) -> str:
    return "x".join(map(str, dims.values()))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", list(SIMPLE))
def test_the_first_rungs_are_right_where_tma_can_read_the_rows(bench: Bench, name: str, dtype: str) -> None:
    require_right(bench, bench.shipped(name, dtype), ALIGNED, SIMPLE[name])


@pytest.mark.parametrize("dims", [*ALIGNED, *ODD], ids=named)
def test_the_persistent_kernel_is_right_at_edges_and_for_any_leading_dimension(
    bench: Bench, dims: dict[str, int]
) -> None:
    require_right(bench, bench.shipped("wgmma_persistent", "bfloat16"), [dims], PERSISTENT)


def test_the_persistent_kernel_is_right_in_half_precision(bench: Bench) -> None:
    shapes = [ALIGNED[2], ALIGNED[6], ODD[4]]
    require_right(bench, bench.shipped("wgmma_persistent", "float16"), shapes, PERSISTENT)


@pytest.mark.parametrize("layout", ["nt", "tn", "tt"])
def test_operands_may_lie_transposed(bench: Bench, layout: str) -> None:
    require_right(bench, persistent(bench, layout), TRANSPOSED, LAID)


def test_copies_of_odd_rows_serve_launch_after_launch(bench: Bench) -> None:
    """The blocks meet at a word that no launch resets."""
    shapes = [{"M": 300, "N": 301, "K": 303}] * 3
    require_right(
        bench, bench.shipped("wgmma_persistent", "bfloat16"), shapes, [{"cluster_m": 2, "defer": 1}]
    )
