"""Right kernels have no findings, whatever of C++ and CUDA they use."""

from __future__ import annotations

import numpy as np
import pytest
from check_rig import Kernels, given, out, with_every_compiler

from sweeper.emulation import Buffer, HostCompiler, Order, Scalar
from sweeper.paths import kernels_dir

GEMM = kernels_dir() / "gemm"

IDIOMS = """
#include <algorithm>
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>
namespace cg = cooperative_groups;

__constant__ float weights[4] = {1, 2, 3, 4};
__device__ unsigned tickets;
__device__ const int primes[4] = {2, 3, 5, 7};

struct Pair {
  float value;
  int index;
};
struct alignas(16) Wide {
  double a, b;
  char tail[5];
};

__global__ void block_sum(const float* A, float* C, int n) {
  __shared__ float partial[32];
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += A[i];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0;
    sum = cg::reduce(cg::tiled_partition<32>(cg::this_thread_block()), sum, cg::plus<float>());
    if (threadIdx.x == 0) C[blockIdx.x] = sum;
  }
}

__global__ void halving_sum(const float* A, float* C, int n) {
  extern __shared__ float all[];
  all[threadIdx.x] = threadIdx.x < n ? A[threadIdx.x] : 0;
  __syncthreads();
  for (int step = blockDim.x / 2; step >= 32; step /= 2) {
    if (threadIdx.x < step) all[threadIdx.x] += all[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x < 32) {
    float sum = all[threadIdx.x];
    __syncwarp();
    for (int step = 16; step > 0; step /= 2) {
      if (threadIdx.x < step) sum += all[threadIdx.x + step];
      __syncwarp();
      if (threadIdx.x < step) all[threadIdx.x] = sum;
      __syncwarp();
    }
    if (threadIdx.x == 0) C[0] = sum;
  }
}

__global__ void carved(const float* A, float* C, int n) {
  extern __shared__ __align__(16) unsigned char raw[];
  double* sums = reinterpret_cast<double*>(raw);
  Pair* best = reinterpret_cast<Pair*>(sums + blockDim.x);
  unsigned short* order = reinterpret_cast<unsigned short*>(best + blockDim.x);
  const int t = threadIdx.x;
  sums[t] = A[t];
  best[t] = {A[t], t};
  order[t] = static_cast<unsigned short>(blockDim.x - 1 - t);
  __syncthreads();
  const Pair other = best[order[t]];
  C[t] = static_cast<float>(sums[order[t]]) + other.value + std::min(sums[t], sums[0]) + std::max(best[0].index, t);
}

__global__ void vectors(const float4* A, float4* C) {
  __shared__ float4 tile[32];
  tile[threadIdx.x] = A[threadIdx.x];
  __syncthreads();
  const float4 v = tile[31 - threadIdx.x];
  float lanes[4];
  memcpy(lanes, &v, sizeof lanes);
  C[threadIdx.x] = make_float4(lanes[3], lanes[2], v.y, reinterpret_cast<const float*>(&tile[threadIdx.x])[0]);
}

__global__ void halves(const __half* A, float* C) {
  __shared__ __half2 tile[32];
  tile[threadIdx.x] = reinterpret_cast<const __half2*>(A)[threadIdx.x];
  __syncthreads();
  const __half2 sum = __hadd2(tile[threadIdx.x], tile[31 - threadIdx.x]);
  C[threadIdx.x] = __low2float(sum) + __half2float(reinterpret_cast<const __half*>(tile)[63 - threadIdx.x]);
}

__global__ void transposed(const float* A, float* C) {
  __shared__ float tile[16][17];
  tile[threadIdx.y][threadIdx.x] = A[16 * threadIdx.y + threadIdx.x];
  __syncthreads();
  C[16 * threadIdx.y + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

__global__ void histogram(const int* A, int* C, int n) {
  __shared__ int bins[16];
  for (int i = threadIdx.x; i < 16; i += blockDim.x) bins[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&bins[A[i] & 15], 1);
  __syncthreads();
  if (threadIdx.x < 16) atomicAdd(C + threadIdx.x, bins[threadIdx.x]);
  if (threadIdx.x == 0) atomicInc(&tickets, 1000);
}

template <int Depth> __device__ float horner(const float* x) {
  return horner<Depth - 1>(x) * 0.5f + x[Depth];
}
template <> __device__ float horner<0>(const float* x) { return x[0]; }

__device__ __noinline__ void swap_ends(float (&values)[8]) {
  const float kept = values[0];
  values[0] = values[7];
  values[7] = kept;
}

__global__ void local_arrays(const float* A, float* C) {
  float mine[8];
  for (int i = 0; i < 8; ++i) mine[i] = A[(threadIdx.x + i) % 64] * weights[i % 4] + primes[i & 3];
  swap_ends(mine);
  float* end = mine + 8;
  for (float* p = mine + 1; p < end; ++p) {
    if (p[-1] > *p) std::swap(p[-1], *p);
  }
  Wide wide{1, 2, {"abcd"}};
  Wide twin = wide;
  const char* text = "literal";
  auto pick = [&](int i) { return mine[i] + text[i] + twin.tail[i % 5]; };
  C[threadIdx.x] = pick(threadIdx.x % 8) + horner<5>(mine);
  if (threadIdx.x == 0) printf("%s %f\\n", text, mine[0]);
}

__global__ void warps_leave(const float* A, float* C, int n) {
  const int warp = threadIdx.x / 32;
  if (32 * warp >= n) return;
  const unsigned active = __activemask();
  const float x = A[threadIdx.x];
  const int first = __ffs(__ballot_sync(active, x > 0)) - 1;
  C[threadIdx.x] = x + __shfl_sync(active, x, first) + __popc(__match_any_sync(active, threadIdx.x % 3));
}

__global__ void stages(const float* A, float* C, int steps) {
  __shared__ __align__(16) float stage[3][64];
  auto fetch = [&](int i) {
    const int four = 4 * threadIdx.x;
    if (i < steps && four < 64) __pipeline_memcpy_async(&stage[i % 3][four], A + 64 * i + four, 16);
    __pipeline_commit();
  };
  fetch(0);
  fetch(1);
  float sum = 0;
  for (int i = 0; i < steps; ++i) {
    __pipeline_wait_prior(1);
    __syncthreads();
    fetch(i + 2);
    sum += stage[i % 3][63 - threadIdx.x];
  }
  C[threadIdx.x] = sum;
}

__global__ void tensor_cores(const __half* A, const __half* B, float* C) {
  using namespace nvcuda;
  __shared__ __half a[16][16], b[16][16];
  __shared__ float c[16][16];
  for (int i = threadIdx.x; i < 256; i += 32) a[i / 16][i % 16] = A[i], b[i / 16][i % 16] = B[i];
  __syncwarp();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> x;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> y;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> z;
  wmma::fill_fragment(z, 0.0f);
  wmma::load_matrix_sync(x, &a[0][0], 16);
  wmma::load_matrix_sync(y, &b[0][0], 16);
  wmma::mma_sync(z, x, y, z);
  wmma::store_matrix_sync(&c[0][0], z, 16, wmma::mem_row_major);
  __syncwarp();
  for (int i = threadIdx.x; i < 256; i += 32) C[i] = c[i % 16][i / 16];
}

__global__ void agreed(int* C) {
  __shared__ int turn;
  if (threadIdx.x == 0) turn = 0;
  __syncthreads();
  for (int i = 0; i < 3; ++i) {
    if (__syncthreads_and(turn == i)) {
      if (threadIdx.x == 7) turn = i + 1;
    }
    __syncthreads();
  }
  C[threadIdx.x] = turn;
}
"""


@with_every_compiler
def compiler(request: pytest.FixtureRequest) -> HostCompiler:
    found: HostCompiler = request.param
    return found


@pytest.fixture(scope="module")
def kernels(compiler: HostCompiler, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    return Kernels(compiler, tmp_path_factory.mktemp("idioms"), IDIOMS)


def n(value: int) -> Scalar:
    return Scalar("n", np.int32(value))


def halves(shape: int) -> Buffer:
    return given(shape, np.float16)


CASES = {
    "block_sum": lambda: ((given(1000), out(3), n(1000)), {"grid": 3, "block": 96}),
    "halving_sum": lambda: ((given(100), out(1), n(100)), {"block": 128, "shared_bytes": 512}),
    "carved": lambda: ((given(64), out(64), n(64)), {"block": 64, "shared_bytes": 64 * 18}),
    "vectors": lambda: ((given((32, 4)), out((32, 4))), {"block": 32}),
    "halves": lambda: ((halves(64), out(32)), {"block": 32}),
    "transposed": lambda: ((given((16, 16)), out((16, 16))), {"block": (16, 16)}),
    "histogram": lambda: ((given(500, np.int32), out(16, np.int32), n(500)), {"grid": 2, "block": 64}),
    "local_arrays": lambda: ((given(64), out(64)), {"block": 64}),
    "warps_leave": lambda: ((given(64), out(64), n(40)), {"block": 96}),
    "stages": lambda: ((given((7, 64)), out(64), n(7)), {"block": 64}),
    "tensor_cores": lambda: ((halves(256), halves(256), out(256)), {"block": 32}),
    "agreed": lambda: ((out(64, np.int32),), {"block": 64}),
}


def arguments_of(kernels: Kernels, name: str, arguments: tuple[object, ...]) -> tuple[object, ...]:
    """float4 pointers are given arrays of structures."""
    if name != "vectors":
        return arguments
    four = np.dtype([(axis, np.float32) for axis in "xyzw"])
    source, target = (Buffer(b.name, (32,), four, writable=b.writable) for b in arguments)  # type: ignore[attr-defined]
    return source, target


@pytest.mark.parametrize("order", [Order.FORWARD, Order.REVERSE], ids=["forward", "reverse"])
@pytest.mark.parametrize("name", CASES)
def test_right_kernels_have_no_findings(kernels: Kernels, name: str, order: Order) -> None:
    arguments, how = CASES[name]()
    report = kernels.run(name, *arguments_of(kernels, name, arguments), order=order, **how)
    assert (report.ok, report.message) == (True, "")
    assert report.findings == ()


def test_every_idiom_is_run(kernels: Kernels) -> None:
    assert set(kernels.names) == set(CASES)


SHIPPED = [
    ("00_uncoalesced.cu", "gemm_uncoalesced<float>", (16, 8), (8, 16)),
    ("01_naive.cu", "gemm_naive<double, 0, 0>", (16, 8), (16, 8)),
    ("02_tiled.cu", "gemm_tiled<float, 16>", (16, 16), (16, 16)),
    ("02_tiled.cu", "gemm_tiled<__half, 8>", (8, 8), (8, 8)),
    ("04_register_tile.cu", "gemm_register_tile<float, 32, 16, 8, 4, 2>", (64, 1), (16, 32)),
    ("sample_block.cu", "gemm_sample_block<float, 16>", (16, 16), (16, 16)),
]
DTYPES = {"double": np.float64, "__half": np.float16}


@pytest.mark.parametrize(("file", "entry", "block", "tile"), SHIPPED, ids=[entry for _, entry, *_ in SHIPPED])
def test_shipped_kernels_have_no_findings(
    compiler: HostCompiler,
    tmp_path_factory: pytest.TempPathFactory,
    file: str,
    entry: str,
    block: tuple[int, int],
    tile: tuple[int, int],
) -> None:
    """Every configuration of them is checked by `python -m sweeper.check kernels=all`."""
    folder = tmp_path_factory.mktemp("shipped")
    kernels = Kernels(compiler, folder, (GEMM / file).read_text(), (entry,), include_dirs=(GEMM,))
    m, columns, k = (32, 48, 64) if "sample_block" in entry else (33, 41, 19)
    dtype = DTYPES.get(entry.partition("<")[2].partition(",")[0].strip(">"), np.float32)
    random = np.random.default_rng(0)
    a, b = (random.integers(-3, 4, shape).astype(dtype) for shape in ((m, k), (k, columns)))
    c = Buffer("C", (m, columns), dtype, writable=True)
    named = {"M": m, "N": columns, "K": k, "lda": k, "ldb": columns, "ldc": columns}
    sizes = [Scalar(name, np.int32(v)) for name, v in named.items()]
    grid = (-(-columns // tile[0]), -(-m // tile[1]))
    if "uncoalesced" in entry:
        grid = grid[::-1]
    report = kernels.run(
        entry,
        Buffer.of("A", a),
        Buffer.of("B", b),
        c,
        *(sizes[1:3] if "sample_block" in entry else sizes),
        grid=grid,
        block=block,
    )
    assert (report.ok, report.findings) == (True, ())
    assert (c.array == a.astype(np.float64) @ b).all()
