"""Few rows of A past a streamed B, on a GPU with TMA: right at every edge, in every class, launch after launch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from bench_rig import QUICK, Bench, no_gpu

pytestmark = pytest.mark.skipif(no_gpu(), reason="no GPU, or no PyCUDA")

# One block alone; a cluster of each size; two blocks a multiprocessor; a warp a panel and many; every number of rows.
WIDE: list[dict[str, Any]] = [
    {"rows": 1, "panels": 1, "bk": 64, "down": 4, "stages": 2, "cluster": 1, "blocks": 1},
    {"rows": 2, "panels": 3, "bk": 64, "down": 2, "stages": 4, "cluster": 4, "blocks": 1},
    {"rows": 4, "panels": 4, "bk": 32, "down": 1, "stages": 3, "cluster": 2, "blocks": 2},
    {"rows": 8, "panels": 1, "bk": 128, "down": 8, "stages": 5, "cluster": 8, "blocks": 1},
    {"rows": 16, "panels": 2, "bk": 64, "down": 4, "stages": 4, "cluster": 4, "blocks": 1},
    {"rows": 32, "panels": 2, "bk": 32, "down": 2, "stages": 8, "cluster": 8, "blocks": 1},
]
NARROW: list[dict[str, Any]] = [
    {"rows": 8, "panels": 1, "bk": 64, "down": 4, "stages": 2, "cluster": 1, "blocks": 1},
    {"rows": 16, "panels": 3, "bk": 64, "down": 2, "stages": 4, "cluster": 4, "blocks": 2},
    {"rows": 32, "panels": 2, "bk": 128, "down": 2, "stages": 3, "cluster": 8, "blocks": 1},
]
CONFIGURATIONS = {"float32": WIDE, "float64": WIDE, "float16": NARROW, "bfloat16": NARROW}

# One element; a strip that ends within 128 bytes and a K within a unit; rounds of each ring; more strips than the
# device holds clusters, so that rings and barriers go on from one to the next; more rows than a block takes.
SHAPES = [(1, 1, 1), (3, 72, 17), (16, 200, 4100), (7, 20008, 264), (40, 1000, 136)]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench("cuda", tmp_path_factory.mktemp("kernels"))
    if made.target.cc != (9, 0):
        made.close()
        pytest.skip("TMA kernels are written for compute capability 9.0")
    yield made
    made.close()


def rows_apart(m: int, n: int, k: int, dtype: str) -> dict[str, int]:
    """Sizes with rows that begin where TMA can read them, touching where they may."""
    unit = {"float32": 4, "float64": 2}.get(dtype, 8)
    return {"M": m, "N": n, "K": k, "LDA": -(-k // unit) * unit, "LDB": -(-n // unit) * unit, "LDC": n}


@pytest.mark.parametrize("dtype", list(CONFIGURATIONS))
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_it_is_right_at_every_edge(bench: Bench, dtype: str, shape: tuple[int, int, int]) -> None:
    """The whole output, with as few rows to a block as M fits in, and with more and fewer."""
    spec = bench.shipped("streamed_gemv", dtype)
    for params in CONFIGURATIONS[dtype]:
        outcome = bench.measure(spec, rows_apart(*shape, dtype), params)
        assert outcome.check is not None
        assert outcome.check.passed, params
        assert outcome.check.checked == shape[0] * shape[1]
        assert outcome.build is not None
        assert outcome.build.local_bytes == 0, params


@pytest.mark.parametrize("dtype", list(CONFIGURATIONS))
def test_it_is_right_where_rows_lie_apart(bench: Bench, dtype: str) -> None:
    """What lies between the rows is neither used nor written; rows of C begin anywhere."""
    dims = {"M": 6, "N": 133, "K": 75, "LDA": 88, "LDB": 144, "LDC": 135}
    for params in CONFIGURATIONS[dtype]:
        check = bench.measure(bench.shipped("streamed_gemv", dtype), dims, params).check
        assert check is not None
        assert check.passed, params


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_launch_gives_the_same_bits(bench: Bench, dtype: str) -> None:
    """Three launches are held against each other, bit by bit, before any is timed, and one after that."""
    spec = bench.shipped("streamed_gemv", dtype)
    protocol = replace(QUICK, verify_launches=3)
    for params in CONFIGURATIONS[dtype]:
        check = bench.measure(spec, rows_apart(13, 4104, 1000, dtype), params, protocol).check
        assert check is not None
        assert check.passed, params
