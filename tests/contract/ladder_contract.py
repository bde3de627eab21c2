"""The rungs of the GEMM ladder that have a space of their own to be right in, on one backend.

class TestMine(LadderContract):
    backend = "cuda"
"""

from __future__ import annotations

from typing import Any

import pytest
from bench_rig import Bench, OnBench

__all__ = ["CONFIGURATIONS", "LadderContract"]

# Two configurations each, as different as they come; tiles of one block and of many at the edges below.
CONFIGURATIONS: dict[str, list[dict[str, Any]]] = {
    "thread_tile": [
        {"bm": 64, "bn": 64, "bk": 8, "tm": 8},
        {"bm": 8, "bn": 16, "bk": 32, "tm": 2},
    ],
    "vector_loads": [
        {"bm": 64, "bn": 64, "bk": 8, "tm": 8, "tn": 4, "vec": 2, "pad": 4},
        {"bm": 16, "bn": 128, "bk": 4, "tm": 1, "tn": 4, "vec": 1, "pad": 0},
    ],
    "warp_tile": [
        {"bm": 64, "bn": 64, "bk": 16, "wm": 32, "wn": 32, "iter_n": 2, "tm": 4, "tn": 4},
        {"bm": 16, "bn": 64, "bk": 16, "wm": 16, "wn": 32, "iter_n": 1, "tm": 4, "tn": 4},
    ],
    "async_pipeline": [
        {"bm": 64, "bn": 64, "bk": 16, "wm": 32, "wn": 32, "tm": 4, "tn": 8}
        | {"stages": 3, "group": 4, "unroll": 2, "bursts": 2, "paired": 1, "blocks": 2},
        {"bm": 32, "bn": 32, "bk": 8, "wm": 16, "wn": 32, "tm": 4, "tn": 4}
        | {"stages": 2, "group": 1, "unroll": 4, "bursts": 1, "paired": 0, "blocks": 1},
    ],
    "split_k": [
        {"bm": 64, "bn": 64, "bk": 16, "wm": 32, "wn": 32, "tm": 4, "tn": 8}
        | {"stages": 2, "group": 1, "unroll": 2, "bursts": 1, "paired": 0, "blocks": 1, "splits": 5},
        {"bm": 32, "bn": 32, "bk": 8, "wm": 16, "wn": 32, "tm": 4, "tn": 4}
        | {"stages": 3, "group": 4, "unroll": 4, "bursts": 1, "paired": 1, "blocks": 1, "splits": 24},
    ],
    "gemv": [
        {"rows": 4, "vec": 2, "across": 2, "down": 2, "unroll": 2, "splits": 1},
        {"rows": 4, "vec": 1, "across": 1, "down": 4, "unroll": 4, "splits": 8},
    ],
    "gemv_columns": [
        {"columns": 4, "rows": 4, "vec": 1, "warps": 2, "splits": 1},
        {"columns": 4, "rows": 2, "vec": 2, "warps": 4, "splits": 8},
    ],
}
CLASSES = {name: ["float32", "float64"] for name in ("async_pipeline", "split_k")}
ALL_CLASSES = ["float32", "float64", "float16", "bfloat16", "int8"]
CASES = [(name, dtype) for name in CONFIGURATIONS for dtype in CLASSES.get(name, ALL_CLASSES)]

# One element; fewer rows and columns than any tile and no round depth; more of each than a tile, none round.
# The last has rows that begin where vectors may, and ends of rows where they may not.
EDGES = [(1, 1, 1), (3, 3, 431), (31, 33, 17), (65, 67, 100)]
SHAPES = {
    "gemv": [(4, 1, 1), (3, 3, 431), (5, 131, 70), (4, 64, 100)],
    "gemv_columns": [(1, 3, 1), (3, 3, 431), (131, 5, 70), (64, 3, 600)],
}


class LadderContract(OnBench):
    """The ladder on one backend, named by `backend`."""

    @pytest.mark.parametrize(("name", "dtype"), CASES)
    def test_a_rung_is_right_at_every_edge(self, bench: Bench, name: str, dtype: str) -> None:
        """The whole output, in every class that the rung serves."""
        spec = bench.shipped(name, dtype)
        for m, n, k in SHAPES.get(name, EDGES):
            for params in CONFIGURATIONS[name]:
                check = bench.measure(spec, {"M": m, "N": n, "K": k, **rows_touch(n, k)}, params).check
                assert check.passed
                assert check.checked == m * n

    @pytest.mark.parametrize("name", list(CONFIGURATIONS))
    @pytest.mark.parametrize("gap", [1, 4])
    def test_a_rung_is_right_where_rows_lie_apart(self, bench: Bench, name: str, gap: int) -> None:
        """Leading dimensions of their own: what lies between the rows is neither used nor written."""
        m, n, k = {"gemv": (3, 132, 72), "gemv_columns": (133, 4, 600)}.get(name, (33, 68, 72))
        spec = bench.shipped(name)
        dims = {"M": m, "N": n, "K": k, "LDA": k + gap, "LDB": n + gap, "LDC": n + gap}
        for params in CONFIGURATIONS[name]:
            assert bench.measure(spec, dims, params).check.passed


def rows_touch(n: int, k: int) -> dict[str, int]:
    return {"LDA": k, "LDB": n, "LDC": n}
