"""On a GPU with warpgroup products: ping-pong, stream-K and swapped operands are right in every mode, at every edge."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from bench_rig import QUICK, Bench, no_gpu

from sweeper.build.source import translation_unit
from sweeper.kernel import description as kernel
from sweeper.model import KernelSpec, Point
from sweeper.paths import conf_dir
from sweeper.resources.feasible import feasible_space

pytestmark = pytest.mark.skipif(no_gpu(), reason="no GPU, or no PyCUDA")

# One element, less than a tile, ends that are no round number, a deep one, gaps between rows, more tiles than blocks.
ALIGNED: list[dict[str, int]] = [
    {"M": 1, "N": 1, "K": 1, "LDA": 8, "LDB": 8},
    {"M": 31, "N": 33, "K": 17, "LDA": 24, "LDB": 40},
    {"M": 3, "N": 3, "K": 431, "LDA": 432, "LDB": 8},
    {"M": 129, "N": 257, "K": 520, "LDB": 264},
    {"M": 64, "N": 64, "K": 8192},
    {"M": 100, "N": 130, "K": 4104, "LDA": 4112, "LDB": 136, "LDC": 131},
    {"M": 700, "N": 1030, "K": 1000, "LDB": 1032, "LDC": 1031},
    {"M": 1300, "N": 2100, "K": 264, "LDB": 2104},
]
# Rows that begin anywhere.
ODD: list[dict[str, int]] = [
    {"M": 1, "N": 1, "K": 1},
    {"M": 31, "N": 33, "K": 17},
    {"M": 3, "N": 3, "K": 431},
    {"M": 1000, "N": 900, "K": 77},
    {"M": 257, "N": 136, "K": 4099},
    {"M": 1300, "N": 2100, "K": 263},
]
TRANSPOSED: list[dict[str, int]] = [
    {"M": 136, "N": 264, "K": 520},
    {"M": 257, "N": 135, "K": 129},
    {"M": 1304, "N": 2104, "K": 264},
]


def tile(bm: int, bn: int, consumers: int, stages: int, **more: int) -> dict[str, int]:
    return {"bm": bm, "bn": bn, "consumers": consumers, "stages": stages, "splits": 0, "waves": 0, **more}


def rows(count: int, bn: int, consumers: int, stages: int, **more: int) -> dict[str, int]:
    return {
        "rows": count,
        "bn": bn,
        "consumers": consumers,
        "stages": stages,
        "splits": 0,
        "waves": 0,
        **more,
    }


# Each way of cutting the work and of adding up, over small tiles (more of them at the edges) and large ones.
CONFIGURATIONS: dict[str, list[dict[str, int]]] = {
    "wgmma_stream_k": [
        tile(64, 64, 1, 4),
        tile(64, 64, 1, 4, waves=1),
        tile(64, 64, 1, 4, waves=2),
        tile(64, 64, 1, 4, blocks=2, persistent=264),
        tile(64, 64, 1, 4, splits=1),
        tile(64, 64, 1, 4, splits=2),
        tile(64, 64, 1, 4, splits=4),
        tile(64, 64, 1, 4, splits=4, together=1),
        tile(64, 64, 1, 8, splits=66),
        tile(64, 64, 1, 3, splits=2, bk=128),
        tile(64, 128, 1, 4, cluster_m=2, splits=2, together=1),
        tile(128, 128, 2, 4, splits=2, together=2),
        tile(64, 256, 1, 4, splits=4, together=2, store=1),
        tile(64, 128, 1, 4, cluster_m=2, splits=2, together=2),
        tile(64, 64, 1, 4, splits=8, together=4),
        tile(64, 64, 1, 8, splits=64, together=8),
        tile(64, 64, 1, 4, splits=112, together=4),
        tile(64, 256, 1, 4, splits=12, together=4, cluster_m=2, ahead=2),
        tile(64, 128, 1, 4, splits=16, together=4, cluster_n=2),
        tile(64, 192, 1, 4, splits=16, together=8),
        tile(128, 128, 2, 4, splits=24, together=8),
        tile(64, 64, 1, 3, splits=8, together=4, blocks=2),
        tile(64, 128, 1, 4, cluster_m=2, waves=2),
        tile(64, 256, 1, 4),
        tile(128, 128, 2, 4),
        tile(128, 128, 2, 4, cluster_m=2),
        tile(128, 256, 2, 4),
        tile(128, 256, 2, 4, splits=3),
        tile(256, 128, 2, 4, splits=1),
        tile(192, 128, 3, 4, splits=2),
        tile(128, 128, 2, 4, cluster_n=2, waves=2),
        tile(64, 128, 1, 4, cluster_m=2, splits=3),
        tile(64, 64, 1, 4, splits=1, store=1),
        tile(64, 128, 1, 8, splits=1, store=1),
        tile(64, 128, 1, 8, splits=1, store=1, cluster_m=2, ahead=2),
        tile(64, 128, 1, 4, splits=1, store=3, cluster_m=2, ahead=4, hint=1),
        tile(64, 128, 1, 4, splits=2, cluster_n=2, ahead=1),
        tile(128, 256, 2, 4, splits=1, store=3),
        tile(128, 256, 2, 4, splits=1, store=3, cluster_n=2, ahead=2, group=16),
        tile(128, 128, 1, 3, splits=1, store=3, bk=128, cluster_m=2, ahead=2),
        tile(192, 192, 3, 4, splits=1, store=3),
    ],
    "wgmma_swapped": [
        rows(8, 128, 2, 8),
        rows(16, 128, 1, 10),
        rows(16, 64, 1, 10, splits=4, together=1),
        rows(16, 64, 1, 10, splits=2),
        rows(32, 64, 1, 8, splits=1),
        rows(32, 64, 1, 8),
        rows(64, 128, 2, 6, splits=1),
        rows(64, 64, 1, 8, splits=6),
        rows(96, 192, 1, 6, splits=2),
        rows(128, 128, 2, 6),
        rows(128, 128, 2, 6, waves=1),
        rows(128, 64, 1, 6, splits=4, together=1),
        rows(128, 64, 1, 4, blocks=2, persistent=264),
        rows(144, 128, 2, 5, splits=1),
        rows(96, 192, 3, 4, splits=1),
        rows(160, 64, 1, 4, splits=2, together=1),
        rows(64, 128, 2, 6, cluster=2, splits=1),
        rows(64, 128, 2, 6, cluster=2, splits=2),
        rows(96, 192, 3, 4, cluster=2),
        rows(96, 192, 3, 5, cluster=2, splits=1, store=3, ahead=2),
        rows(96, 192, 1, 4, splits=1, store=3),
        rows(64, 128, 2, 6, cluster=2, splits=1, store=3, ahead=4),
        rows(128, 256, 2, 4, cluster=2, splits=1, store=3, ahead=1),
        rows(192, 64, 1, 4, splits=1, store=3),
        rows(176, 192, 3, 4, cluster=2, splits=1, ahead=2),
    ],
    "wgmma_pingpong": [
        {"bm": 64, "bn": 256, "stages": 4},
        {"bm": 128, "bn": 128, "stages": 6, "cluster": 2},
        {"bm": 64, "bn": 128, "stages": 6, "store": 1, "buffers": 1},
        {"bm": 64, "bn": 64, "bk": 128, "stages": 4, "store": 0, "buffers": 1},
        {"bm": 64, "bn": 192, "stages": 4, "order": 2},
        {"bm": 128, "bn": 128, "stages": 6, "cluster": 2, "store": 3, "ahead": 4, "group": 4, "order": 2},
        {"bm": 64, "bn": 256, "stages": 4, "store": 3, "ahead": 1},
    ],
}
# What a launch leaves in the scratch is what the next ones find; and sums that depend on who comes first, and so
# differ from launch to launch, are no pass.
REPEATED = replace(QUICK, verify_launches=5)


def ident(dims: Mapping[str, int]) -> str:
    return "x".join(map(str, dims.values()))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench("cuda", tmp_path_factory.mktemp("streams"))
    if made.target.cc != (9, 0):
        made.close()
        pytest.skip("wgmma is of compute capability 9.0")
    yield made
    made.close()


def built_ahead(bench: Bench, spec: KernelSpec, points: list[Point]) -> None:
    """All of them side by side, into the cache that the bench builds from."""
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda p: bench.builder.build(
                    translation_unit(spec, p), arch=bench.target.arch, deadline_s=120
                ),
                points,
            )
        )


def all_right(bench: Bench, spec: KernelSpec, dims: Mapping[str, int], chosen: list[dict[str, int]]) -> None:
    space = feasible_space(spec, dims, bench.target)
    points = [Point.of({**spec.default_point.params, **one}) for one in chosen]
    possible = [point for point in points if space.why_infeasible(point) is None]
    assert possible
    built_ahead(bench, spec, possible)
    for point in possible:
        outcome = bench.measure(spec, dims, dict(point.params), REPEATED)
        assert outcome.check is not None
        assert outcome.check.passed, point.params
        assert outcome.check.checked == dims["M"] * dims["N"]
        assert outcome.build is not None
        assert outcome.build.local_bytes == 0, point.params


@pytest.mark.parametrize("dims", ALIGNED, ids=ident)
@pytest.mark.parametrize("name", list(CONFIGURATIONS))
def test_every_mode_is_right_at_edges_launch_after_launch(
    bench: Bench, name: str, dims: dict[str, int]
) -> None:
    all_right(bench, bench.shipped(name, "bfloat16"), dims, CONFIGURATIONS[name])


@pytest.mark.parametrize("dims", ALIGNED[3:6], ids=ident)
@pytest.mark.parametrize("name", list(CONFIGURATIONS))
def test_half_precision_is_right_too(bench: Bench, name: str, dims: dict[str, int]) -> None:
    all_right(bench, bench.shipped(name, "float16"), dims, CONFIGURATIONS[name])


@pytest.mark.parametrize("dims", ODD, ids=ident)
@pytest.mark.parametrize("name", ["wgmma_stream_k", "wgmma_pingpong"])
def test_rows_that_begin_anywhere_are_copied_first(bench: Bench, name: str, dims: dict[str, int]) -> None:
    all_right(bench, bench.shipped(name, "bfloat16"), dims, CONFIGURATIONS[name])


@pytest.mark.parametrize("layout", ["nt", "tn", "tt"])
@pytest.mark.parametrize("name", ["wgmma_stream_k", "wgmma_pingpong"])
def test_operands_may_lie_transposed(bench: Bench, name: str, layout: str) -> None:
    node = json.loads(bench.shipped(name, "bfloat16").node_json)
    spec = kernel.load({**node, "layout": layout}, conf_dir() / "kernel" / f"{name}.yaml")
    for dims in TRANSPOSED:
        all_right(bench, spec, dims, CONFIGURATIONS[name])
