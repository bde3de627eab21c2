"""What must hold of kernels wherever they run. A device passes by subclassing `KernelContract`:

class TestMine(KernelContract):
    backend = "cuda"
"""

from __future__ import annotations

import pytest
from bench_rig import Bench, OnBench, matrices, sizes

from sweeper.errors import ConfigError, KernelError, NoValidConfiguration
from sweeper.model import Stage, Status
from sweeper.resources.feasible import feasible_space

__all__ = ["KernelContract"]

# Smaller than any tile, one element, no size a multiple of anything, and one row more than a tile.
EDGES = [(1, 1, 1), (3, 3, 431), (31, 33, 17), (33, 32, 32)]

# Two configurations each, as different as they come.
CONFIGURATIONS = {
    "uncoalesced": [{"block_x": 32, "block_y": 8}, {"block_x": 8, "block_y": 32}],
    "naive": [{"block_x": 128, "block_y": 1}, {"block_x": 8, "block_y": 16}],
    "tiled": [{"tile": 8}, {"tile": 32}],
    "register_tile": [
        {"bm": 64, "bn": 64, "bk": 8, "tm": 4, "tn": 4},
        {"bm": 16, "bn": 128, "bk": 32, "tm": 1, "tn": 8},
    ],
    "sample_plain": [{"block_x": 64}, {"block_x": 1024}],
}
DTYPES = ["float32", "float64", "float16", "bfloat16", "int8"]

# One thread one element of C, and then what `act` says.
ACTS_CU = r"""
template <typename T, int act>
__global__ void product(const T* A, const T* B, T* C, int M, int N, int K) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (act == 1 || i >= M || j >= N) return;
  if (act == 2 && i >= M / 2) return;
  T sum = 0;
  for (int k = 0; k < K; ++k) sum += A[i * K + k] * B[k * N + j];
  if (act == 3 && i == 5 && j == 6) sum = T(0) / (T(0) * sum);
  if (act == 4 && i == 5 && j == 6) sum = T(1) / (T(0) * sum);
  if (act == 5) sum *= T(1.001);
  C[i * N + j] = sum;
}
"""
ACTS = {"right": 0, "nothing": 1, "half": 2, "nan": 3, "inf": 4, "slightly_off": 5}

# Tiles in shared memory; BARRIER stands where a tile has been used and may be overwritten. The last warps
# dawdle, so that without it the others have overwritten the tile by then, on any device.
TILED_CU = r"""
template <typename T, int TILE>
__global__ void __launch_bounds__(TILE * TILE) product(const T* A, const T* B, T* C, int M, int N, int K) {
  __shared__ T a[TILE][TILE];
  __shared__ T b[TILE][TILE];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
  T sum = 0;
  for (int k = 0; k < K; k += TILE) {
    a[y][x] = row < M && k + x < K ? A[row * K + k + x] : T(0);
    b[y][x] = k + y < K && column < N ? B[(k + y) * N + column] : T(0);
    __syncthreads();
    const long long began = clock64();
    while (y == TILE - 1 && clock64() - began < 5000) {
    }
    for (int i = 0; i < TILE; ++i) sum += a[y][i] * b[i][x];
    BARRIER
  }
  if (row < M && column < N) C[row * N + column] = sum;
}
"""

# Rows of A are read four (of float) or two (of half) elements at once.
VECTOR_CU = r"""
#include <cuda_fp16.h>
__global__ void product(const ELEMENT* A, const ELEMENT* B, ELEMENT* C, int M, int N, int K) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= M || j >= N) return;
  float sum = 0;
  for (int k = 0; k + WIDTH <= K; k += WIDTH) {
    const VECTOR v = *reinterpret_cast<const VECTOR*>(A + i * K + k);
    const ELEMENT* a = reinterpret_cast<const ELEMENT*>(&v);
    for (int w = 0; w < WIDTH; ++w) sum += float(a[w]) * float(B[(k + w) * N + j]);
  }
  C[i * N + j] = ELEMENT(sum);
}
"""

# A tile of A and B in shared memory that is static or dynamic; the threads of a block share the work.
SHARED_CU = r"""
template <int BM, int BN, int BK>
__global__ void product(const float* A, const float* B, float* C, int M, int N, int K) {
  DECLARED
  float* b = a + BM * BK;
  float sum[BM * BN / 128] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    for (int i = threadIdx.x; i < BM * BK; i += blockDim.x) {
      const int row = blockIdx.y * BM + i / BK, k = k0 + i % BK;
      a[i] = row < M && k < K ? A[row * K + k] : 0.f;
    }
    for (int i = threadIdx.x; i < BK * BN; i += blockDim.x) {
      const int k = k0 + i / BN, column = blockIdx.x * BN + i % BN;
      b[i] = k < K && column < N ? B[k * N + column] : 0.f;
    }
    __syncthreads();
    for (int i = threadIdx.x, n = 0; i < BM * BN; i += blockDim.x, ++n)
      for (int k = 0; k < BK; ++k) sum[n] += a[i / BN * BK + k] * b[k * BN + i % BN];
    __syncthreads();
  }
  for (int i = threadIdx.x, n = 0; i < BM * BN; i += blockDim.x, ++n) {
    const int row = blockIdx.y * BM + i / BN, column = blockIdx.x * BN + i % BN;
    if (row < M && column < N) C[row * N + column] = sum[n];
  }
}
"""
SHARED_LAUNCH = {"block": [128], "grid": ["ceil(N / BN)", "ceil(M / BM)"]}

# Tensor cores, one warp a 16×16 tile of C. cuda_fp16.h is not included twice by what includes mma.h.
MATRIX_CU = r"""
#include <mma.h>
#include <cuda_fp16.h>
using namespace nvcuda;
__global__ void product(const ELEMENT* A, const ELEMENT* B, float* C, int M, int N, int K) {
  const int row = blockIdx.y * 16, column = blockIdx.x * 16;
  wmma::fragment<wmma::accumulator, 16, 16, DEPTH, float> sum;
  wmma::fill_fragment(sum, 0.f);
  for (int k = 0; k < K; k += DEPTH) {
    wmma::fragment<wmma::matrix_a, 16, 16, DEPTH, FRAGMENT, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, DEPTH, FRAGMENT, wmma::row_major> b;
    wmma::load_matrix_sync(a, A + row * K + k, K);
    wmma::load_matrix_sync(b, B + k * N + column, N);
    ROUND
    wmma::mma_sync(sum, a, b, sum);
  }
  wmma::store_matrix_sync(C + row * N + column, sum, N, wmma::mem_row_major);
}
"""
ROUND_TF32 = """for (int i = 0; i < a.num_elements; ++i) a.x[i] = wmma::__float_to_tf32(a.x[i]);
    for (int i = 0; i < b.num_elements; ++i) b.x[i] = wmma::__float_to_tf32(b.x[i]);"""

SAXPY_CU = r"""
#include <cuda_fp16.h>
__global__ void saxpy(const float* x, float* y, float alpha, __half beta, long long n, unsigned shift) {
  const long long i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = alpha * x[i] + float(beta) * y[i] + float(shift);
}
"""

# What the description calls float64 the source calls Number, which tokens do not tell from anything else.
NARROW_CU = r"""
typedef float Number;
__global__ void product(const float* A, const float* B, Number* C, int M, int N, int K) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= M || j >= N) return;
  Number sum = 0;
  for (int k = 0; k < K; ++k) sum += A[i * K + k] * B[k * N + j];
  C[i * N + j] = sum;
}
"""


def dims(m: int, n: int, k: int) -> dict[str, int]:
    return {"M": m, "N": n, "K": k}


def matrix_source(element: str, fragment: str, depth: int, round_operands: str = "") -> str:
    text = MATRIX_CU.replace("ELEMENT", element).replace("FRAGMENT", fragment)
    return text.replace("DEPTH", str(depth)).replace("ROUND", round_operands)


class KernelContract(OnBench):
    """Kernels on one backend, named by `backend`."""

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("name", list(CONFIGURATIONS))
    def test_a_shipped_kernel_is_right_at_every_edge(self, bench: Bench, name: str, dtype: str) -> None:
        """Problems smaller than a tile, of one element, of no round size: the whole output, in every class."""
        # xlite-dev/LeetCUDA#294; yzhaiustc/Optimizing-SGEMM-on-NVIDIA-Turing-GPUs#10
        spec = bench.shipped(name, dtype)
        for m, n, k in EDGES:
            for params in CONFIGURATIONS[name]:
                check = bench.measure(spec, dims(m, n, k), params).check
                assert check.passed
                assert check.checked == m * n

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_a_kernel_without_edge_handling_is_right_where_it_may_run(self, bench: Bench, dtype: str) -> None:
        """Sizes that are multiples of its block pass; any other is ruled out, with the condition as reason."""
        spec = bench.shipped("sample_block", dtype)
        for m, n, k in [(32, 64, 96), (16, 16, 16), (160, 32, 32)]:
            assert bench.measure(spec, dims(m, n, k), {"block": 16}).check.passed
        for sizes_ in EDGES:
            with pytest.raises(NoValidConfiguration, match="M % block == 0"):
                feasible_space(spec, dims(*sizes_), bench.target)

    @pytest.mark.parametrize("sizes_", [(1000, 1000, 1000), (256, 512, 64), (8, 4, 6)])
    def test_unequal_and_round_sizes_are_right(self, bench: Bench, sizes_: tuple[int, int, int]) -> None:
        """Rows and columns are told apart: operands are row-major, and the reference reads the same arrays."""
        # Liu-xiandong/How_to_optimize_in_GPU#13; inducer/pycuda#145
        assert bench.measure(bench.shipped("tiled"), dims(*sizes_), {"tile": 16}).check.passed

    def test_a_transposed_operand_is_found_out(self, bench: Bench) -> None:
        """Square sizes hide nothing: no input is symmetric."""
        source = ACTS_CU.replace("B[k * N + j]", "B[j * N + k]")
        spec = bench.load("transposed", source, template=["T", 0])
        assert bench.failure(spec, dims(64, 64, 64)).status is Status.WRONG_RESULT

    @pytest.mark.parametrize("act", [name for name in ACTS if name != "right"])
    def test_a_wrong_launch_fails_although_the_one_before_it_was_right(self, bench: Bench, act: str) -> None:
        """One NaN, one infinity, half of the output or none of it written: nothing of an earlier launch helps."""
        # siboehm/SGEMM_CUDA#20; triton-lang/triton#9230
        levels = {"act": list(ACTS.values())}
        spec = bench.load("acts", ACTS_CU, template=["T", "act"], params=levels)
        assert bench.measure(spec, dims(64, 64, 64), {"act": ACTS["right"]}).check.passed
        failure = bench.failure(spec, dims(64, 64, 64), {"act": ACTS[act]})
        assert (failure.status, failure.stage) == (Status.WRONG_RESULT, Stage.VERIFY)
        wrong = {"nan": 1, "inf": 1, "half": 32 * 64}.get(act, 64 * 64)
        assert failure.details["check"].wrong == pytest.approx(wrong, rel=0.2)
        assert bench.measure(spec, dims(64, 64, 64), {"act": ACTS["right"]}).check.passed

    def test_a_missing_barrier_shows_where_there_are_many_tiles(self, bench: Bench) -> None:
        """Right with one tile along K, wrong with many: each problem is proved by itself."""
        # KnowingNothing/MatmulTutorial#13
        params = {"TILE": [32]}
        launch = {"block": ["TILE", "TILE"], "grid": ["ceil(N / TILE)", "ceil(M / TILE)"]}
        node = {"template": ["T", "TILE"], "params": params, "launch": launch}
        whole = bench.load("barrier", TILED_CU.replace("BARRIER", "__syncthreads();"), **node)
        racy = bench.load("no_barrier", TILED_CU.replace("BARRIER", ""), **node)
        assert bench.measure(whole, dims(256, 256, 1024)).check.passed
        assert bench.measure(racy, dims(256, 256, 32)).check.passed
        assert bench.failure(racy, dims(256, 256, 1024)).status is Status.WRONG_RESULT

    @pytest.mark.parametrize("fill", ["uniform", "normal"])
    def test_a_right_kernel_passes_however_long_its_sums_are(self, bench: Bench, fill: str) -> None:
        """8192 terms: the bound follows the length, and an element near zero is not judged by its own size."""
        # ROCm/rocMLIR#2431; pytorch/torchtitan#4348
        spec = bench.load(
            f"long_{fill}", ACTS_CU, template=["T", 0], args=[*matrices(fill=fill), *sizes(*"MNK")]
        )
        assert bench.measure(spec, dims(64, 48, 8192)).check.passed

    def test_one_wrong_element_of_long_sums_is_found(self, bench: Bench) -> None:
        spec = bench.load("long_nan", ACTS_CU, template=["T", ACTS["slightly_off"]])
        assert bench.failure(spec, dims(64, 48, 8192)).status is Status.WRONG_RESULT

    @pytest.mark.parametrize(
        ("element", "vector", "width", "bad"), [("float", "float4", 4, 130), ("__half", "__half2", 2, 3)]
    )
    def test_a_misaligned_access_costs_one_configuration(
        self, bench: Bench, element: str, vector: str, width: int, bad: int
    ) -> None:
        """Where vectors fit it is right; where they do not that trial fails alone and the next one is true."""
        # NVIDIA/cutlass#49
        source = VECTOR_CU.replace("ELEMENT", element).replace("VECTOR", vector).replace("WIDTH", str(width))
        dtype = "float32" if element == "float" else "float16"
        spec = bench.load(f"vector_{width}", source, dtype=dtype)
        assert bench.measure(spec, dims(32, 16, 128)).check.passed
        failure = bench.failure(spec, dims(32, 16, bad))
        assert failure.status in (Status.CRASH, Status.WRONG_RESULT)
        assert bench.measure(spec, dims(32, 16, 128)).check.passed

    def test_a_condition_on_the_problem_rules_it_out_before_anything_runs(self, bench: Bench) -> None:
        source = VECTOR_CU.replace("ELEMENT", "float").replace("VECTOR", "float4").replace("WIDTH", "4")
        spec = bench.load("vector_if", source, requires={"conditions": ["K % 4 == 0"]})
        with pytest.raises(NoValidConfiguration, match=r"requires K % 4 == 0: 2 != 0 \(K = 130\)"):
            feasible_space(spec, dims(32, 16, 130), bench.target)

    def test_a_kernel_for_newer_devices_is_not_compiled_for_this_one(self, bench: Bench) -> None:
        # mit-han-lab/llm-awq#89
        spec = bench.load("newer", ACTS_CU, template=["T", 0], requires={"min_cc": "99.0"})
        have = f"{bench.target.cc[0]}.{bench.target.cc[1]}"
        with pytest.raises(NoValidConfiguration, match=f"needs cc >= 99.0, have {have}"):
            feasible_space(spec, dims(16, 16, 16), bench.target)

    def test_64_kib_of_shared_memory_are_right_if_dynamic_and_refused_if_static(self, bench: Bench) -> None:
        # eyalroz/gpu-kernel-runner#108
        params = {"BM": [128], "BN": [128], "BK": [64, 512]}
        node = {"template": ["BM", "BN", "BK"], "params": params}
        fits, beyond = ({"BM": 128, "BN": 128, "BK": depth} for depth in (64, 512))
        dynamic = bench.load(
            "dynamic",
            SHARED_CU.replace("DECLARED", "extern __shared__ float a[];"),
            launch={**SHARED_LAUNCH, "shared_bytes": "(BM + BN) * BK * elem_bytes"},
            **node,
        )
        assert bench.measure(dynamic, dims(130, 140, 70), fits).check.passed
        failure = bench.failure(dynamic, dims(130, 140, 70), beyond)
        assert failure.status is Status.LAUNCH_ERROR
        assert str(256 * 512 * 4) in failure.reason
        static = bench.load(
            "static",
            SHARED_CU.replace("DECLARED", "__shared__ float a[(BM + BN) * BK];"),
            launch=SHARED_LAUNCH,
            **node,
        )
        failure = bench.failure(static, dims(130, 140, 70), fits)
        assert failure.status in (Status.BUILD_ERROR, Status.LAUNCH_ERROR)
        assert "65536" in failure.reason or "0x10000" in failure.reason
        assert bench.measure(dynamic, dims(130, 140, 70), fits).check.passed

    def test_a_block_of_too_many_threads_is_refused_with_the_number(self, bench: Bench) -> None:
        # JuliaGPU/CuArrays.jl#211
        spec = bench.load("many", ACTS_CU, template=["T", 0], launch={"block": [64, 32], "grid": [1]})
        failure = bench.failure(spec, dims(32, 64, 8))
        assert failure.status is Status.LAUNCH_ERROR
        assert "threads 2048 > 1024" in failure.reason
        with pytest.raises(NoValidConfiguration, match="2048 > 1024"):
            feasible_space(spec, dims(32, 64, 8), bench.target)

    def test_a_problem_beyond_the_memory_fails_alone(self, bench: Bench) -> None:
        """480 GB are refused before anything is allocated, and the next problem passes."""
        # triton-lang/triton#11174
        spec = bench.shipped("tiled")
        assert bench.failure(spec, dims(200_000, 200_000, 200_000)).status is Status.OUT_OF_MEMORY
        assert bench.measure(spec, dims(64, 64, 64), {"tile": 16}).check.passed

    def test_a_failed_compile_is_one_configurations_failure(self, bench: Bench) -> None:
        # ROCm/composable_kernel#1641
        source = ACTS_CU.replace("T sum = 0;", 'static_assert(act >= 4, "act is at least 4"); T sum = 0;')
        levels = {"act": [2, 5]}
        spec = bench.load(
            "asserted", source.replace("act == ", "act - 5 == "), template=["T", "act"], params=levels
        )
        failure = bench.failure(spec, dims(16, 16, 16), {"act": 2})
        assert (failure.status, failure.stage) == (Status.BUILD_ERROR, Stage.BUILD)
        assert "act is at least 4" in failure.reason
        assert "\n" not in failure.reason
        assert failure.details["log"]
        assert bench.measure(spec, dims(16, 16, 16), {"act": 5}).check.passed

    def test_scalars_arrive_as_their_declared_types(self, bench: Bench) -> None:
        """A float that was written as a whole number, a half, a 64-bit and an unsigned integer."""
        # cupy/cupy#8485; numba/numba#7478
        (bench.folder / "saxpy.py").write_text(
            "def reference(x, y, alpha, beta, n, shift):\n    return alpha * x + beta * y + shift\n"
        )
        spec = bench.load(
            "saxpy",
            SAXPY_CU,
            entry="saxpy",
            dims=["N"],
            launch={"block": [64], "grid": ["ceil(N / 64)"]},
            args=[
                {"name": "x", "shape": ["N"]},
                {"name": "y", "shape": ["N"], "direction": "inout"},
                {"name": "alpha", "scalar": "float32", "value": 2},
                {"name": "beta", "scalar": "float16", "value": 0.5},
                {"name": "n", "scalar": "int64", "value": "N"},
                {"name": "shift", "scalar": "uint32", "value": 3},
            ],
            reference={"python": "saxpy.py"},
        )
        assert bench.measure(spec, {"N": 1000}).check.checked == 1000

    def test_an_array_of_another_type_than_the_kernels_is_refused(self, bench: Bench) -> None:
        """Where the source shows it before any launch; where it does not by the launch or by its result."""
        # inducer/pycuda#267
        arguments = [*matrices("float64"), *sizes(*"MNK")]
        with pytest.raises(KernelError, match=r"argument 3 \(C\) is float, the description's C is double"):
            bench.load("shown", NARROW_CU.replace("Number*", "float*"), args=arguments)
        hidden = bench.load("hidden", NARROW_CU, args=arguments)
        failure = bench.failure(hidden, dims(32, 32, 16))
        assert failure.status in (Status.WRONG_RESULT, Status.LAUNCH_ERROR)

    def test_half_precision_tensor_cores_are_held_against_the_rounded_inputs(self, bench: Bench) -> None:
        """256³ in fragments: errors of the inputs' rounding are none of the kernel's."""
        # xlite-dev/LeetCUDA#277; inducer/pycuda#264
        spec = bench.load(
            "wmma_half",
            matrix_source("__half", "__half", 16),
            dtype="float16",
            args=[*matrices("float32"), *sizes(*"MNK")],
            launch={"block": [32], "grid": ["N // 16", "M // 16"]},
            requires={"min_cc": "7.0"},
        )
        check = bench.measure(spec, dims(256, 256, 256)).check
        assert check.passed
        assert check.max_error < 1e-3

    def test_tf32_is_a_class_of_its_own(self, bench: Bench) -> None:
        """Fragments of 11 bits pass as tf32, and fail as float32."""
        # triton-lang/triton#2042; tensorflow/tensorflow#127346
        source = matrix_source("float", "wmma::precision::tf32", 8, ROUND_TF32)
        node = {"launch": {"block": [32], "grid": ["N // 16", "M // 16"]}, "requires": {"min_cc": "8.0"}}
        honest = bench.load("wmma_tf32", source, dtype="tf32", **node)
        assert bench.measure(honest, dims(64, 96, 1024)).check.passed
        pretending = bench.load("wmma_float", source, dtype="float32", **node)
        assert bench.failure(pretending, dims(64, 96, 1024)).status is Status.WRONG_RESULT

    def test_a_result_that_its_type_cannot_hold_is_the_inputs_fault(self, bench: Bench) -> None:
        """70000 ones in half precision are infinite, on both sides of a comparison."""
        # adelj88/rocm_wmma_samples#2
        source = VECTOR_CU.replace("ELEMENT", "__half").replace("VECTOR", "__half2").replace("WIDTH", "2")
        arguments = [*matrices(fill="ones"), *sizes(*"MNK")]
        ones = bench.load("ones", source, dtype="float16", args=arguments)
        assert bench.measure(ones, dims(16, 16, 65504)).check.passed
        with pytest.raises(ConfigError, match=r"input range: .* should be 70000, beyond float16"):
            bench.measure(ones, dims(16, 16, 70000))
        scaled = bench.load("scaled", source, dtype="float16")
        assert bench.measure(scaled, dims(16, 16, 70000)).check.passed

    def test_options_are_recorded_with_the_build(self, bench: Bench) -> None:
        # Liu-xiandong/How_to_optimize_in_GPU#11
        spec = bench.load("debug", ACTS_CU, template=["T", 0], options=["-G"])
        build = bench.measure(spec, dims(16, 16, 16)).build
        assert build is not None
        assert "-G" in build.options

    def test_a_second_build_of_the_same_costs_nothing(self, bench: Bench) -> None:
        """The cache is asked first: what is found there is not preprocessed, let alone compiled."""
        # inducer/pycuda#462
        spec = bench.load("again", ACTS_CU, template=["T", 0])
        bench.measure(spec, dims(16, 16, 16))
        found = bench.measure(spec, dims(16, 16, 16)).build
        assert found is not None
        assert found.cached

    def test_a_failed_configuration_leaves_the_worker_able(self, bench: Bench) -> None:
        """Whatever came before in this session, a right kernel is right."""
        spec = bench.load("last", ACTS_CU, template=["T", 0])
        bench.failure(bench.load("none", ACTS_CU, template=["T", 1]), dims(16, 16, 16))
        assert bench.measure(spec, dims(16, 16, 16)).check.passed
