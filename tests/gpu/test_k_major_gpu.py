"""On a Hopper GPU: the kernels for classes that tensor cores read along K, and how these classes sum and round."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from bench_rig import OnBench, no_gpu

from sweeper.kernel.description import load
from sweeper.model import KernelSpec
from sweeper.paths import conf_dir, kernels_dir

pytestmark = pytest.mark.skipif(no_gpu(), reason="no GPU, or no PyCUDA")

CLASSES = ("tf32", "int8", "float8_e4m3")
LAYOUTS = ("nt", "nn", "tn", "tt")
# One element; less than a tile; tiles that are cut; rows that TMA can read, and rows that it cannot.
SHAPES = (
    {"M": 1, "N": 1, "K": 1},
    {"M": 130, "N": 250, "K": 100},
    {"M": 257, "N": 129, "K": 333},
    {"M": 300, "N": 528, "K": 1040},
    {"M": 64, "N": 64, "K": 64, "LDA": 128, "LDB": 144, "LDC": 65},
)
CONFIGURATIONS = (
    {},
    {"bm": 256, "bn": 128, "cluster_m": 1, "cluster_n": 2},
    {"bm": 192, "bn": 128, "consumers": 3, "order": 2},
    {"bm": 64, "bn": 96, "consumers": 1, "stages": 8, "cluster_m": 1, "order": 1},
    {"bm": 256, "bn": 192, "stages": 3, "group": 4},
    {"bm": 128, "bn": 128, "stages": 6, "cluster_m": 1, "cluster_n": 2, "pingpong": 1},
    {"bm": 128, "bn": 192, "stages": 5, "pingpong": 1},
)


def k_major(dtype: str, layout: str = "nt") -> KernelSpec:
    return shipped("wgmma_k_major", dtype, layout)


def turned(layout: str) -> KernelSpec:
    return shipped("wgmma_turned", "tf32", layout)


def shipped(name: str, dtype: str, layout: str) -> KernelSpec:
    path = conf_dir() / "kernel" / f"{name}.yaml"
    problem = yaml.safe_load((conf_dir() / "problem" / "gemm.yaml").read_text())
    node = {**problem, **yaml.safe_load(path.read_text()), "dtype": dtype, "layout": layout}
    node.pop("defaults")
    return load(node, path)


def at(spec: KernelSpec, **params: int) -> dict[str, Any]:
    return {**spec.default_point.params, **params}


# Element (0, 0) of products whose factors are zero but for their first row, which the swizzle leaves in place. Block j
# adds up 1, 2^-j and -1, in one product, then in three that follow each other; e4m3 counts 2^-9 from zero on.
SUMS_CU = r"""
#include "wgmma.cuh"
__device__ void put(unsigned char* row, int k, int exponent, int negative) {
  row[k] = (exponent >= -6 ? (exponent + 7) << 3 : 1 << (exponent + 9)) | negative << 7;
}
__global__ void sums(float* C, float* R) {
  __shared__ alignas(1024) unsigned char a[64 * 128], b[8 * 128];
  const int j = blockIdx.x;
  for (int order = 0; order < 2; ++order) {
    for (int i = threadIdx.x; i < 64 * 128; i += 128) a[i] = 0;
    for (int i = threadIdx.x; i < 8 * 128; i += 128) b[i] = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
      const int apart = order == 0 ? 1 : 32;
      put(a, 0, 0, 0), put(b, 0, 0, 0);
      put(a, apart, -(j / 2), 0), put(b, apart, -(j - j / 2), 0);
      put(a, 2 * apart, 0, 1), put(b, 2 * apart, 0, 0);
    }
    hopper::fence_async_proxy();
    __syncthreads();
    float sum[4];
    wgmma::fence();
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      wgmma::multiply<wgmma::E4m3>(sum, wgmma::descriptor_k(hopper::shared_address(a)) + k * wgmma::STEP_K,
                                   wgmma::descriptor_k(hopper::shared_address(b)) + k * wgmma::STEP_K, k);
    }
    wgmma::commit();
    wgmma::wait<0>();
    if (threadIdx.x == 0) (order == 0 ? C : R)[j] = sum[0];
    __syncthreads();
  }
}
"""
# Of a sum near 1 the bits down to 2^-13 are kept.
SUMS_PY = """
import numpy as np
def reference():
    kept = np.array([2.0 ** -j if j <= 13 else 0.0 for j in range(17)])
    return {"C": kept, "R": kept}
"""


class TestKMajor(OnBench):
    backend = "cuda"

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("dtype", CLASSES)
    @pytest.mark.parametrize("dims", SHAPES, ids=lambda dims: "x".join(map(str, dims.values())))
    def test_it_is_right_in_every_class_and_layout(self, bench, dims, dtype, layout):
        check = bench.measure(k_major(dtype, layout), dims).check
        assert check.passed
        assert check.checked == dims["M"] * dims["N"]

    @pytest.mark.parametrize("dtype", CLASSES)
    @pytest.mark.parametrize("params", CONFIGURATIONS, ids=str)
    def test_every_kind_of_configuration_is_right(self, bench, params, dtype):
        spec = k_major(dtype)
        for dims in ({"M": 700, "N": 1300, "K": 2000}, {"M": 257, "N": 129, "K": 333}):
            assert bench.measure(spec, dims, at(spec, **params)).check.passed

    @pytest.mark.parametrize("dtype", CLASSES)
    def test_more_tiles_than_multiprocessors_are_all_computed(self, bench, dtype):
        spec = k_major(dtype, "nn")
        for params in (
            {"bm": 64, "bn": 64, "consumers": 1},
            {"bm": 64, "bn": 64, "stages": 8, "pingpong": 1},
        ):
            assert bench.measure(spec, {"M": 1536, "N": 1792, "K": 256}, at(spec, **params)).check.passed

    @pytest.mark.parametrize("promote", [1, 2, 4])
    def test_sums_that_are_added_in_float32_are_nearer(self, bench, promote):
        spec, dims = k_major("float8_e4m3"), {"M": 512, "N": 512, "K": 8192}
        params = at(spec, bn=128, stages=6)
        kept = bench.measure(spec, dims, params).check
        added = bench.measure(spec, dims, {**params, "promote": promote}).check
        assert kept.passed
        assert added.passed
        assert added.max_error < kept.max_error

    def test_tma_rounds_to_tf32(self, bench):
        """Cut off instead, operands err twice as far and towards zero: of a single product by up to 2^-9."""
        outcome = bench.measure(k_major("tf32"), {"M": 512, "N": 512, "K": 1})
        assert outcome.check.passed
        assert 2**-12 < outcome.check.max_error < 1.01 * 2**-10

    def test_a_sum_of_float8_keeps_14_bits(self, bench):
        (bench.folder / "wgmma.cuh").write_text((kernels_dir() / "common" / "wgmma.cuh").read_text())
        (bench.folder / "hopper.cuh").write_text((kernels_dir() / "common" / "hopper.cuh").read_text())
        (bench.folder / "sums.py").write_text(SUMS_PY)
        arrays = [{"name": x, "shape": [17], "direction": "out", "dtype": "float32"} for x in "CR"]
        kernel = bench.load(
            "sums",
            SUMS_CU,
            entry="sums",
            dims={"N": 17},
            launch={"block": [128], "grid": [17]},
            args=arrays,
            requires={"min_cc": "9.0a"},
            reference={"python": "sums.py"},
        )
        assert bench.measure(kernel, {}).check.passed


class TestTurned(OnBench):
    backend = "cuda"

    @pytest.mark.parametrize("layout", ["nn", "tt"])
    @pytest.mark.parametrize(
        "dims",
        [
            {"M": 4, "N": 4, "K": 4},
            {"M": 132, "N": 252, "K": 100},
            {"M": 300, "N": 520, "K": 1032},
            {"M": 64, "N": 64, "K": 64, "LDA": 128, "LDB": 144, "LDC": 65},
        ],
        ids=lambda dims: "x".join(map(str, dims.values())),
    )
    def test_it_is_right_in_both_layouts(self, bench, dims, layout):
        assert bench.measure(turned(layout), dims).check.passed

    @pytest.mark.parametrize(
        "params",
        [
            {"cluster_p": 1, "cluster_q": 2, "order": 2},
            {"bp": 256, "bq": 128, "group": 4},
            {"bp": 64, "bq": 96, "consumers": 1, "stages": 8, "order": 1},
            {"bp": 192, "bq": 128, "consumers": 3, "cluster_p": 1},
        ],
        ids=str,
    )
    def test_every_kind_of_configuration_is_right(self, bench, params):
        """Of K an even and an odd number of k-blocks, which go separate ways."""
        for k in (1024, 1056, 1060):
            spec = turned("nn")
            assert bench.measure(spec, {"M": 700, "N": 1300, "K": k}, at(spec, **params)).check.passed

    def test_rows_that_tma_cannot_read_are_no_configuration(self):
        """LDA · 4 bytes must be a multiple of 16: such problems are another kernel's."""
        texts = [constraint.text for constraint in turned("nn").constraints]
        assert any("LDA" in text and "% 16 == 0" in text for text in texts)
