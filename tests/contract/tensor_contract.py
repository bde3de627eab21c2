"""The tensor-core rungs that run wherever mma.sync does, the emulator included, on one backend.

class TestMine(TensorContract):
    backend = "cuda"
"""

from __future__ import annotations

from typing import Any

import pytest
from bench_rig import Bench, OnBench

from sweeper.model import Status

__all__ = ["CASES", "CLASSES", "CONFIGURATIONS", "TensorContract"]

# Two configurations each, as different as they come; tiles of one block and of many at the edges below.
_RING = {"group": 4, "blocks": 1}
CONFIGURATIONS: dict[str, list[dict[str, Any]]] = {
    "wmma": [
        {"bm": 64, "bn": 64, "bk": 32, "fm": 2, "fn": 2, "pad": 8, "group": 4},
        {"bm": 32, "bn": 32, "bk": 16, "fm": 1, "fn": 2, "pad": 0, "group": 1},
    ],
    "mma_sync": [
        {"bm": 32, "bn": 128, "bk": 64, "wm": 32, "wn": 64, "stages": 3, "ahead": 1, **_RING},
        {"bm": 64, "bn": 128, "bk": 64, "wm": 32, "wn": 32, "stages": 2, "ahead": 0, **_RING},
    ],
    "mma_tf32": [
        {"bm": 32, "bn": 64, "bk": 16, "wm": 16, "wn": 32, "stages": 3, "ahead": 1, **_RING},
        {"bm": 64, "bn": 32, "bk": 32, "wm": 32, "wn": 32, "stages": 2, "ahead": 0, **_RING},
    ],
    "mma_tf32x3": [
        {"bm": 32, "bn": 64, "bk": 16, "wm": 16, "wn": 32, "stages": 3, "ahead": 1, **_RING},
        {"bm": 64, "bn": 32, "bk": 32, "wm": 32, "wn": 32, "stages": 2, "ahead": 0, **_RING},
    ],
    "dmma": [
        {
            "rows": 8,
            "depth": 4,
            "bm": 32,
            "bn": 32,
            "bk": 8,
            "wm": 16,
            "wn": 32,
            "stages": 3,
            "ahead": 1,
            **_RING,
        },
        {
            "rows": 16,
            "depth": 8,
            "bm": 32,
            "bn": 64,
            "bk": 16,
            "wm": 16,
            "wn": 32,
            "stages": 2,
            "ahead": 1,
            **_RING,
        },
        {
            "rows": 16,
            "depth": 16,
            "bm": 64,
            "bn": 32,
            "bk": 16,
            "wm": 32,
            "wn": 16,
            "stages": 4,
            "ahead": 0,
            **_RING,
        },
    ],
}
CLASSES = {
    "wmma": ["bfloat16", "float16"],
    "mma_sync": ["bfloat16", "float16", "int8"],
    "mma_tf32": ["tf32"],
    "mma_tf32x3": ["tf32x3"],
    "dmma": ["float64"],
}
CASES = [(name, dtype) for name, classes in CLASSES.items() for dtype in classes]

# One element; fewer rows and columns than any tile and no round depth; more of each than a tile, none round.
EDGES = [(1, 1, 1), (3, 3, 431), (31, 33, 17), (65, 67, 100)]


# The plain product of operands that are cut off by a mask.
CUT_CU = """
__device__ float cut(float x) { return __uint_as_float(__float_as_uint(x) & MASK); }
__global__ void product(const float* A, const float* B, float* C, int M, int N, int K) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= M || j >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += cut(A[i * K + k]) * cut(B[k * N + j]);
  C[i * N + j] = sum;
}
"""


class TensorContract(OnBench):
    """Wmma and mma.sync on one backend, named by `backend`."""

    @pytest.mark.parametrize(("name", "dtype"), CASES)
    def test_a_rung_is_right_at_every_edge(self, bench: Bench, name: str, dtype: str) -> None:
        """The whole output, in every class that the rung serves."""
        spec = bench.shipped(name, dtype)
        for m, n, k in EDGES:
            for params in CONFIGURATIONS[name]:
                check = bench.measure(spec, _sizes(m, n, k), params).check
                assert check.passed
                assert check.checked == m * n

    @pytest.mark.parametrize("gap", [16, 8, 4, 2, 1])
    @pytest.mark.parametrize(("name", "dtype"), CASES)
    def test_a_rung_is_right_at_every_alignment(self, bench: Bench, name: str, dtype: str, gap: int) -> None:
        """Rows that begin at multiples of 16, 8, 4 or fewer bytes, and are no longer than a part of that.

        What lies between the rows is neither used nor written.
        """
        m, n, k = 33, 70, 70
        spec = bench.shipped(name, dtype)
        at = {"LDA": 80 + gap, "LDB": 80 + gap, "LDC": 80 + gap}
        assert bench.measure(spec, _sizes(m, n, k) | at, CONFIGURATIONS[name][0]).check.passed

    def test_tf32_is_not_as_exact_as_three_of_it(self, bench: Bench) -> None:
        """Of the same inputs the errors differ by three digits, and the bound tells them apart."""
        errors = {}
        for name in ("mma_tf32", "mma_tf32x3"):
            spec = bench.shipped(name, CLASSES[name][0])
            check = bench.measure(spec, _sizes(48, 40, 200), CONFIGURATIONS[name][0]).check
            assert check.passed
            errors[name] = check.max_error
        assert errors["mma_tf32x3"] * 300 < errors["mma_tf32"]

    def test_three_of_tf32_are_as_exact_as_float32(self, bench: Bench) -> None:
        """At a depth at which sums kept in the tensor cores, which cut them off, would be several times worse."""
        sizes = _sizes(32, 32, 4096)
        three = bench.measure(bench.shipped("mma_tf32x3", "tf32x3"), sizes, CONFIGURATIONS["mma_tf32x3"][0])
        single = bench.measure(bench.shipped("naive", "float32"), sizes)
        assert three.check.max_error < 2 * single.check.max_error

    @pytest.mark.parametrize("bits", [24, 11])
    def test_a_tf32_result_does_not_pass_for_three_of_it(self, bench: Bench, bits: int) -> None:
        """Operands of all their bits are right in that class, those of 11 bits are not."""
        mask = f"{2**32 - 2 ** (24 - bits):#x}u"
        spec = bench.load("cut_operands", CUT_CU.replace("MASK", mask), dtype="tf32x3")
        sizes = {"M": 64, "N": 64, "K": 64}
        if bits == 24:
            assert bench.measure(spec, sizes).check.passed
        else:
            assert bench.failure(spec, sizes).status is Status.WRONG_RESULT


def _sizes(m: int, n: int, k: int) -> dict[str, int]:
    return {"M": m, "N": n, "K": k, "LDA": k, "LDB": n, "LDC": n}
