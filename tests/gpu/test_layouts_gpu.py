"""On a GPU: every layout in every class, by the plainest kernel and by NVIDIA's libraries."""

from __future__ import annotations

import pytest
from bench_rig import QUICK, OnBench, no_gpu
from test_layouts import LAYOUTS, naive

from sweeper.errors import TrialFailed

pytestmark = pytest.mark.skipif(no_gpu(), reason="no GPU, or no PyCUDA")

CLASSES = ("float64", "float32", "tf32", "float16", "bfloat16", "float8_e4m3", "int8")
UNEQUAL = {"M": 131, "N": 77, "K": 201}
# What cuBLASLt asks of one-byte operands: rows at multiples of 16 bytes.
ALIGNED = {"M": 192, "N": 320, "K": 448}


class TestLayouts(OnBench):
    backend = "cuda"

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("dtype", CLASSES)
    def test_naive_is_right(self, bench, dtype, layout):
        kernel = naive(dtype=dtype, layout=layout)
        assert bench.measure(kernel, UNEQUAL).check.passed
        assert bench.measure(kernel, {**UNEQUAL, "LDA": 210, "LDB": 211, "LDC": 80}).check.passed

    @pytest.mark.parametrize("library", ["cublas", "cublaslt"])
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("dtype", ["float64", "float32", "tf32", "float16", "bfloat16"])
    def test_the_libraries_are_right(self, bench, dtype, layout, library):
        bench.prepare(naive(dtype=dtype, layout=layout), UNEQUAL)
        outcome = bench.worker.baseline(library, QUICK)
        assert outcome.check.passed
        assert outcome.check.checked == 131 * 77

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_whole_numbers_are_exact_where_the_library_has_them(self, bench, layout):
        bench.prepare(naive(dtype="int8", layout=layout), ALIGNED)
        assert bench.worker.baseline("cublaslt", QUICK).check.error_ratio == 0

    def test_cublaslt_computes_float8_along_k(self, bench):
        bench.prepare(naive(dtype="float8_e4m3", layout="nt"), ALIGNED)
        outcome = bench.worker.baseline("cublaslt", QUICK)
        assert outcome.check.passed
        assert outcome.details["library"]["failed"] == {}

    @pytest.mark.parametrize("layout", ["nn", "tn", "tt"])
    def test_cublaslt_has_no_float8_in_other_layouts_on_hopper(self, bench, layout):
        bench.prepare(naive(dtype="float8_e4m3", layout=layout), ALIGNED)
        with pytest.raises(TrialFailed, match="float8_e4m3") as caught:
            bench.worker.baseline("cublaslt", QUICK)
        assert caught.value.status == "infeasible"

    def test_cublas_says_that_cublaslt_has_float8(self, bench):
        bench.prepare(naive(dtype="float8_e4m3", layout="nt"), ALIGNED)
        with pytest.raises(TrialFailed, match="cuBLASLt has"):
            bench.worker.baseline("cublas", QUICK)
