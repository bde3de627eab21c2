// Pitfall: more shared memory than the block needs.
//
// Rung 2 as it is. What spoils it stands in the launch alone: a block that asks for all the shared memory it may
// have leaves no room for a second one on its SM, and its 8 warps cannot hide each other's waiting.
#include "../element.cuh"

template <typename T, int TILE>
__global__ void __launch_bounds__(TILE* TILE)
    gemm_occupancy(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, int M, int N, int K,
                   int lda, int ldb, int ldc) {
  __shared__ T a_tile[TILE][TILE];
  __shared__ T b_tile[TILE][TILE];

  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;

  Accumulator<T> sum{};
  for (int k0 = 0; k0 < K; k0 += TILE) {
    a_tile[y][x] = row < M && k0 + x < K ? A[static_cast<size_t>(row) * lda + k0 + x] : T{};
    b_tile[y][x] = k0 + y < K && column < N ? B[static_cast<size_t>(k0 + y) * ldb + column] : T{};
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE; ++k) sum += widen(a_tile[y][k]) * widen(b_tile[k][x]);
    __syncthreads();
  }
  if (row < M && column < N) C[static_cast<size_t>(row) * ldc + column] = narrow<T>(sum);
}
