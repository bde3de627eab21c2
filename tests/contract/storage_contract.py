"""What must hold of leading dimensions and of scratch wherever kernels run.

class TestMine(StorageContract):
    backend = "cuda"
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from bench_rig import Bench, OnBench, sizes

from sweeper.errors import ConfigError
from sweeper.model import KernelSpec, Status
from sweeper.paths import conf_dir

__all__ = ["StorageContract"]

OPTIONAL = {"M": None, "N": None, "K": None, "LDA": "K", "LDB": "N", "LDC": "N"}
SHAPES = [(1, 1, 1), (31, 33, 17), (3, 3, 431), (64, 32, 48)]
SHIPPED = {
    "uncoalesced": {"block_x": 32, "block_y": 8},
    "naive": {"block_x": 8, "block_y": 16},
    "tiled": {"tile": 16},
    "register_tile": {"bm": 32, "bn": 64, "bk": 8, "tm": 2, "tn": 4},
    "sample_plain": {"block_x": 64},
}
DTYPES = ["float32", "float64", "float16", "bfloat16", "int8"]

# One thread one element of C, and then what ACT says.
PITCHED_CU = r"""
template <typename T, int ACT>
__global__ void product(const T* A, const T* B, OUT* C, int M, int N, int K, int lda, int ldb, int ldc) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= M || j >= N) return;
  OUT sum = 0;
  const int rows = ACT == 2 ? N : ldb;
  for (int k = 0; k < K; ++k) sum += static_cast<OUT>(A[i * lda + k]) * static_cast<OUT>(B[k * rows + j]);
  if (ACT == 1) sum += static_cast<OUT>(A[(M > 1 && i == M - 1 ? i - 1 : i) * lda + K]);
  C[i * ldc + j] = sum;
  if (ACT == 3 && i == 2 && j == N - 1) C[i * ldc + N + 1] = 1;
  if (ACT == 4 && i == 2 && j == 0) const_cast<T*>(A)[i * lda + K] = 1;
}
"""
ACTS = {"right": 0, "reads a gap": 1, "takes N for ldb": 2, "writes a gap": 3, "writes a gap of an input": 4}

BATCHED_CU = r"""
template <typename T> struct Sum { using type = float; };
template <> struct Sum<double> { using type = double; };
template <> struct Sum<signed char> { using type = int; };
template <typename T> struct Stored { using type = T; };
template <> struct Stored<signed char> { using type = int; };

template <typename T, int WRONG>
__global__ void product(const T* A, const T* B, typename Stored<T>::type* C, int M, int N, int K, int lda, int ldb,
                        int ldc, long long stride_a, long long stride_b, long long stride_c) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= M || j >= N) return;
  A += blockIdx.z * stride_a, B += blockIdx.z * stride_b, C += blockIdx.z * stride_c;
  typename Sum<T>::type sum = 0;
  for (int k = 0; k < K; ++k)
    sum += static_cast<typename Sum<T>::type>(A[i * lda + k]) * static_cast<typename Sum<T>::type>(B[k * ldb + j]);
  if (WRONG && blockIdx.z == 4 && i == 2 && j == 3) sum += 100;
  C[i * ldc + j] = static_cast<typename Stored<T>::type>(sum);
}
"""

# SPLITS parts of K by as many blocks; the last one of a tile to come adds up what the others left.
SPLIT_CU = r"""
template <int SPLITS>
__global__ void product(const float* A, const float* B, float* C, float* partial, unsigned int* arrived, int M, int N,
                        int K, int splits) {
  __shared__ bool last;
  const int j = blockIdx.x * 16 + threadIdx.x, i = blockIdx.y * 16 + threadIdx.y, s = blockIdx.z;
  const int tile = blockIdx.y * gridDim.x + blockIdx.x;
  const bool inside = i < M && j < N;
  const int each = (K + SPLITS - 1) / SPLITS, begin = s * each, end = begin + each < K ? begin + each : K;
  float sum = 0;
  if (inside) for (int k = begin; k < end; ++k) sum += A[i * K + k] * B[k * N + j];
  if (SPLITS == 1) {
    if (inside) C[i * N + j] = sum;
    return;
  }
  if (inside) partial[(s * M + i) * N + j] = sum;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) last = atomicAdd(&arrived[tile], 1u) == splits - 1u;
  __syncthreads();
  if (!last) return;
  __threadfence();
  if (inside) {
    sum = 0;
    for (int part = 0; part < SPLITS; ++part) sum += partial[(part * M + i) * N + j];
    C[i * N + j] = sum;
  }
  RESTORE
}
"""
RESTORED = "if (threadIdx.x == 0 && threadIdx.y == 0) arrived[tile] = 0;"


def scratch(name: str, *shape: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "shape": list(shape), "direction": "scratch", **more}


def dims(m: int, n: int, k: int, **more: int) -> dict[str, int]:
    return {"M": m, "N": n, "K": k, **more}


def spaced(m: int, n: int, k: int) -> dict[str, int]:
    return dims(m, n, k, LDA=k + 5, LDB=n + 3, LDC=n + 7)


class StorageContract(OnBench):
    """Kernels on one backend, named by `backend`."""

    # --- Rows that lie apart --------------------------------------------------------------------------

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("name", list(SHIPPED))
    def test_a_shipped_kernel_takes_any_leading_dimensions(self, bench: Bench, name: str, dtype: str) -> None:
        spec = bench.shipped(name, dtype)
        for shape in SHAPES:
            outcome = bench.measure(spec, spaced(*shape), SHIPPED[name])
            assert outcome.check.passed
            assert outcome.check.checked == shape[0] * shape[1]

    def test_each_leading_dimension_may_stand_by_itself(self, bench: Bench) -> None:
        spec = bench.shipped("tiled")
        for more in ({"LDA": 40}, {"LDB": 34}, {"LDC": 64}, {"LDA": 17, "LDB": 33}):
            assert bench.measure(spec, dims(31, 33, 17, **more), {"tile": 8}).check.passed

    def test_a_leading_dimension_shorter_than_a_row_is_an_error(self, bench: Bench) -> None:
        with pytest.raises(ConfigError, match=r"shape\.lda = 16: a row of A has K = 17 elements"):
            bench.measure(bench.shipped("tiled"), dims(31, 33, 17, LDA=16), {"tile": 8})

    def pitched(self, bench: Bench, dtype: str = "float32", out: str = "float") -> KernelSpec:
        arrays: list[dict[str, Any]] = [
            {"name": "A", "shape": ["M", "K"], "pitch": "LDA", "direction": "in"},
            {"name": "B", "shape": ["K", "N"], "pitch": "LDB", "direction": "in"},
            {"name": "C", "shape": ["M", "N"], "pitch": "LDC", "direction": "out", "dtype": "output"},
        ]
        leading = [{"name": n, "scalar": "int32", "value": n.upper()} for n in ("lda", "ldb", "ldc")]
        return bench.load(
            f"pitched_{dtype}",
            PITCHED_CU.replace("OUT", out),
            dims=OPTIONAL,
            dtype=dtype,
            template=["T", "act"],
            params={"act": list(ACTS.values())},
            args=[*arrays, *sizes("M", "N", "K"), *leading],
        )

    @pytest.mark.parametrize(("dtype", "out"), [("float32", "float"), ("int8", "int")])
    @pytest.mark.parametrize("act", [act for act in ACTS if act != "right"])
    def test_who_uses_what_lies_between_rows_is_found(
        self, bench: Bench, act: str, dtype: str, out: str
    ) -> None:
        """Gaps of inputs make a result wrong, a gap of the output tells that it was written, and where."""
        spec, shape = self.pitched(bench, dtype, out), spaced(20, 24, 28)
        assert bench.measure(spec, shape, {"act": 0}).check.passed
        failure = bench.failure(spec, shape, {"act": ACTS[act]})
        if act == "writes a gap":
            assert failure.status is Status.WRONG_RESULT
            assert "between the rows of C" in failure.reason
            assert "C[2, 25]" in failure.reason
        elif act == "writes a gap of an input" and self.backend == "emulator":
            assert failure.status is Status.CRASH
            assert "write of A[2, 28], between the rows of A" in failure.reason
        else:
            assert failure.status is Status.WRONG_RESULT
        assert bench.measure(spec, shape, {"act": 0}).check.passed

    # --- A batch --------------------------------------------------------------------------------------

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_a_batch_of_products_is_one_problem(self, bench: Bench, dtype: str) -> None:
        """A matrix a block layer, with leading dimensions or without; a wrong one is named by its number."""
        problem = yaml.safe_load((conf_dir() / "problem" / "batched_gemm.yaml").read_text(encoding="utf-8"))
        spec = bench.load(
            f"batched_{dtype}",
            BATCHED_CU,
            **{**problem, "dtype": dtype},
            template=["T", "wrong"],
            params={"wrong": [0, 1]},
            launch={"block": [16, 16], "grid": ["ceil(N / 16)", "ceil(M / 16)", "BATCH"]},
        )
        for shape in (dims(31, 17, 33, BATCH=3), spaced(20, 24, 28) | {"BATCH": 5}, dims(1, 1, 1, BATCH=1)):
            check = bench.measure(spec, shape, {"wrong": 0}).check
            assert check.passed
            assert check.checked == shape["BATCH"] * shape["M"] * shape["N"]
        failure = bench.failure(spec, spaced(20, 24, 28) | {"BATCH": 5}, {"wrong": 1})
        assert failure.status is Status.WRONG_RESULT
        assert "C[4, 2, 3]" in failure.reason

    # --- Scratch --------------------------------------------------------------------------------------

    def split(self, bench: Bench, name: str, source: str, **partial: Any) -> KernelSpec:
        arrays = [
            {"name": "A", "shape": ["M", "K"]},
            {"name": "B", "shape": ["K", "N"]},
            {"name": "C", "shape": ["M", "N"], "direction": "out"},
            scratch("partial", "splits if splits > 1 else 0", "M", "N", **{"fill": "none", **partial}),
            scratch("arrived", "ceil(M / 16) * ceil(N / 16)", dtype="uint32"),
        ]
        return bench.load(
            name,
            source,
            template=["splits"],
            params={"splits": [1, 2, 5]},
            args=[*arrays, *sizes("M", "N", "K"), {"name": "splits", "scalar": "int32", "value": "splits"}],
            launch={"block": [16, 16], "grid": ["ceil(N / 16)", "ceil(M / 16)", "splits"]},
        )

    @pytest.mark.parametrize("shape", [(1, 1, 1), (31, 33, 17), (100, 40, 200)])
    def test_scratch_may_grow_with_the_parameters_and_be_empty(
        self, bench: Bench, shape: tuple[int, int, int]
    ) -> None:
        spec = self.split(bench, "split", SPLIT_CU.replace("RESTORE", RESTORED))
        for splits in (1, 2, 5, 2):
            assert bench.measure(spec, dims(*shape), {"splits": splits}).check.passed

    def test_a_kernel_that_does_not_leave_its_counters_as_it_needs_them_is_found(self, bench: Bench) -> None:
        spec = self.split(bench, "unrestored", SPLIT_CU.replace("RESTORE", ""))
        assert bench.measure(spec, dims(31, 33, 17), {"splits": 1}).check.passed
        failure = bench.failure(spec, dims(31, 33, 17), {"splits": 2})
        assert failure.status is Status.WRONG_RESULT
        assert "see what it left in partial, arrived" in failure.reason

    def test_scratch_that_is_not_filled_holds_nothing_of_use(self, bench: Bench) -> None:
        """A sum that begins at what is there is not a sum, even after a launch that left something there."""
        source = SPLIT_CU.replace("partial[(s * M + i) * N + j] = sum", "partial[(s * M + i) * N + j] += sum")
        unfilled = self.split(bench, "unfilled", source.replace("RESTORE", RESTORED))
        assert bench.failure(unfilled, dims(31, 33, 17), {"splits": 2}).status is Status.WRONG_RESULT

    def test_scratch_of_zeros_is_zero_before_the_first_launch_of_each_configuration(
        self, bench: Bench
    ) -> None:
        """The second launch adds to what the first one left, and is found."""
        source = SPLIT_CU.replace("partial[(s * M + i) * N + j] = sum", "partial[(s * M + i) * N + j] += sum")
        added = self.split(bench, "added", source.replace("RESTORE", RESTORED), fill="zeros")
        for splits in (2, 5):
            failure = bench.failure(added, dims(31, 33, 17), {"splits": splits})
            assert failure.status is Status.WRONG_RESULT
            assert "see what it left in" in failure.reason

    def test_a_write_beside_scratch_is_found(self, bench: Bench) -> None:
        source = SPLIT_CU.replace("RESTORE", RESTORED + " arrived[gridDim.x * gridDim.y] = 1;")
        spec = self.split(bench, "beside", source)
        failure = bench.failure(spec, dims(31, 33, 17), {"splits": 2})
        assert "arrived" in failure.reason
