"""On a GPU: rows that lie apart, scratch, and problems of more than 2^31 elements."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench_rig import QUICK, Bench, no_gpu, sizes

from sweeper.model import KernelSpec, Status

pytest.register_assert_rewrite("contract.storage_contract")

from contract.storage_contract import RESTORED, SPLIT_CU, StorageContract, dims, spaced  # noqa: E402

pytestmark = pytest.mark.skipif(no_gpu(), reason="no GPU, or no PyCUDA")

# One thread one element, offsets as wide as they need to be; the last element is off where WRONG says so.
THIN_CU = r"""
template <int WRONG>
__global__ void product(const float* A, const float* B, float* C, int M, int N, int K, int lda, int ldb, int ldc) {
  const long long j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y;
  if (j >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[i * lda + k] * B[static_cast<long long>(k) * ldb + j];
  if (WRONG && i == M - 1 && j == N - 1) sum += 1;
  C[i * ldc + j] = sum;
}
"""
PATIENT = replace(QUICK, deadline_s=60.0)


def thin_shape(apart: int) -> dict[str, int]:
    """10.5 GB of C, whose rows end `apart` elements before the next ones begin."""
    shape = dims(65535, 40000, 2)
    return shape | {"LDA": 2 + apart, "LDC": 40000 + apart} if apart else shape


class TestStorageOnGpu(StorageContract):
    backend = "cuda"

    def test_the_library_gets_the_leading_dimensions(self, bench: Bench) -> None:
        bench.prepare(bench.shipped("tiled"), spaced(130, 70, 300))
        assert bench.worker.baseline("cublas", QUICK).check.passed

    def test_cold_launches_have_a_scratch_of_their_own(self, bench: Bench) -> None:
        """A short kernel is timed in batches, each launch on copies; all of them are right afterwards."""
        spec = self.split(bench, "split", SPLIT_CU.replace("RESTORE", RESTORED))
        outcome = bench.measure(spec, dims(64, 64, 64), {"splits": 5})
        assert outcome.check.passed
        assert outcome.timing is not None
        assert outcome.timing.cache == "cold"

    @pytest.mark.parametrize("shape", [(1, 1, 1), (31, 33, 17), (3, 3, 431), (4097, 4097, 4097)])
    def test_sizes_of_any_kind_are_right(self, bench: Bench, shape: tuple[int, int, int]) -> None:
        params = {"bm": 64, "bn": 64, "bk": 8, "tm": 4, "tn": 4}
        assert bench.measure(bench.shipped("register_tile"), dims(*shape), params).check.passed

    @pytest.mark.parametrize("apart", [0, 24])
    def test_an_output_of_more_than_2_31_elements_is_compared_to_the_last(
        self, bench: Bench, apart: int
    ) -> None:
        outcome = bench.measure(self.thin(bench), thin_shape(apart), {"wrong": 0}, PATIENT)
        assert outcome.check.passed
        assert outcome.check.checked == 65535 * 40000 > 2**31

    def test_a_shipped_kernel_is_right_beyond_2_31_elements(self, bench: Bench) -> None:
        params = {"bm": 128, "bn": 128, "bk": 8, "tm": 8, "tn": 8}
        outcome = bench.measure(bench.shipped("register_tile"), thin_shape(24), params, PATIENT)
        assert outcome.check.passed

    def test_one_wrong_element_beyond_2_31_is_named(self, bench: Bench) -> None:
        failure = bench.failure(self.thin(bench), thin_shape(24), {"wrong": 1}, PATIENT)
        assert failure.status is Status.WRONG_RESULT
        assert failure.details["check"].wrong == 1
        assert "C[65534, 39999]" in failure.reason

    def thin(self, bench: Bench) -> KernelSpec:
        arrays = [
            {"name": "A", "shape": ["M", "K"], "pitch": "LDA"},
            {"name": "B", "shape": ["K", "N"], "pitch": "LDB"},
            {"name": "C", "shape": ["M", "N"], "pitch": "LDC", "direction": "out"},
        ]
        leading = [{"name": n, "scalar": "int32", "value": n.upper()} for n in ("lda", "ldb", "ldc")]
        return bench.load(
            "thin",
            THIN_CU,
            dims={"M": None, "N": None, "K": None, "LDA": "K", "LDB": "N", "LDC": "N"},
            template=["wrong"],
            params={"wrong": [0, 1]},
            args=[*arrays, *sizes("M", "N", "K"), *leading],
            launch={"block": [256], "grid": ["ceil(N / 256)", "M"]},
        )
