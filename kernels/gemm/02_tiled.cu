// Rung 2: a block stages square tiles of A and B in shared memory.
//
// Adds to rung 1: each element that a block reads from global memory serves BLOCK_SIZE threads, so
// global loads fall from 2·M·N·K to 2·M·N·K / BLOCK_SIZE. Elements outside the matrices are staged
// as zeros, which makes the inner loop free of tests and right for any M, N, K.
// Still bound by shared memory: two loads for every multiply-add.
#include "element.cuh"

template <typename T, int BLOCK_SIZE>
__global__ void __launch_bounds__(BLOCK_SIZE* BLOCK_SIZE)
    gemm_tiled(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, int M, int N, int K,
               int lda, int ldb, int ldc) {
  __shared__ T a_tile[BLOCK_SIZE][BLOCK_SIZE];
  __shared__ T b_tile[BLOCK_SIZE][BLOCK_SIZE];

  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * BLOCK_SIZE + y;
  const int column = blockIdx.x * BLOCK_SIZE + x;

  Accumulator<T> sum{};
  for (int k0 = 0; k0 < K; k0 += BLOCK_SIZE) {
    const bool a_inside = row < M && k0 + x < K;
    const bool b_inside = k0 + y < K && column < N;
    a_tile[y][x] = a_inside ? A[static_cast<size_t>(row) * lda + k0 + x] : T{};
    b_tile[y][x] = b_inside ? B[static_cast<size_t>(k0 + y) * ldb + column] : T{};
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BLOCK_SIZE; ++k) sum += widen(a_tile[y][k]) * widen(b_tile[k][x]);
    __syncthreads();
  }
  if (row < M && column < N) C[static_cast<size_t>(row) * ldc + column] = narrow<T>(sum);
}
