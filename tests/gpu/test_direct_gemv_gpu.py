"""Few rows of A and B straight into registers, on a GPU with clusters: right at every edge, launch after launch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from bench_rig import QUICK, Bench, no_gpu

pytestmark = pytest.mark.skipif(no_gpu(), reason="no GPU, or no PyCUDA")

# A block alone and a cluster of each size; both numbers of rows with more and with fewer rows than blocks to a
# cluster; each number of loads under way; lanes and strips of each width; with the hint and without.
CONFIGURATIONS: list[dict[str, Any]] = [
    {"rows": 8, "width": 4, "across": 1, "down": 16, "buffers": 2, "cluster": 1, "order": 1, "hint": 1},
    {"rows": 8, "width": 8, "across": 2, "down": 4, "buffers": 4, "cluster": 2, "order": 0, "hint": 0},
    {"rows": 8, "width": 4, "across": 1, "down": 8, "buffers": 3, "cluster": 8, "order": 1, "hint": 1},
    {"rows": 16, "width": 8, "across": 1, "down": 4, "buffers": 4, "cluster": 2, "order": 0, "hint": 1},
    {"rows": 16, "width": 4, "across": 4, "down": 2, "buffers": 2, "cluster": 4, "order": 1, "hint": 1},
    {"rows": 16, "width": 8, "across": 2, "down": 1, "buffers": 3, "cluster": 8, "order": 0, "hint": 0},
    {"rows": 16, "width": 4, "across": 1, "down": 1, "buffers": 2, "cluster": 1, "order": 1, "hint": 0},
]

# One run of 16 bytes; a strip that ends within 64 columns and a K within 32; one row, which only the first block of a
# cluster has; every buffer refilled; more strips than the device holds blocks; more rows than a block takes.
SHAPES = [(1, 8, 8), (3, 72, 40), (1, 4096, 4096), (16, 200, 4104), (7, 20008, 264), (40, 1000, 1032)]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench("cuda", tmp_path_factory.mktemp("kernels"))
    if made.target.cc[0] < 9:
        made.close()
        pytest.skip("clusters need compute capability 9.0")
    yield made
    made.close()


def touching(m: int, n: int, k: int) -> dict[str, int]:
    return {"M": m, "N": n, "K": k, "LDA": k, "LDB": n, "LDC": n}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_it_is_right_at_every_edge(bench: Bench, dtype: str, shape: tuple[int, int, int]) -> None:
    """The whole output, with as few rows to a block as M fits in, and with more and fewer."""
    spec = bench.shipped("direct_gemv", dtype)
    for params in CONFIGURATIONS:
        outcome = bench.measure(spec, touching(*shape), params)
        assert outcome.check is not None
        assert outcome.check.passed, params
        assert outcome.check.checked == shape[0] * shape[1]
        assert outcome.build is not None
        assert outcome.build.local_bytes == 0, params


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_it_is_right_where_rows_lie_apart(bench: Bench, dtype: str) -> None:
    """What lies between the rows is neither used nor written; rows of C begin anywhere."""
    dims = {"M": 6, "N": 136, "K": 72, "LDA": 88, "LDB": 144, "LDC": 139}
    for params in CONFIGURATIONS:
        check = bench.measure(bench.shipped("direct_gemv", dtype), dims, params).check
        assert check is not None
        assert check.passed, params


def test_every_launch_gives_the_same_bits(bench: Bench) -> None:
    """Three launches are held against each other, bit by bit, before any is timed, and one after that."""
    spec = bench.shipped("direct_gemv", "bfloat16")
    protocol = replace(QUICK, verify_launches=3)
    for params in CONFIGURATIONS:
        check = bench.measure(spec, touching(13, 4104, 1000), params, protocol).check
        assert check is not None
        assert check.passed, params
