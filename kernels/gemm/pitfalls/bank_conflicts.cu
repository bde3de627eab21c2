// Pitfall: lanes of a warp that read a column of a tile in shared memory.
//
// Rung 2 with the tile of B stored transposed, as one does to read it along k. The lanes of a warp then read words
// that lie TILE + PAD apart. Without PAD that is a multiple of the 32 banks, all lanes meet in one bank and are
// served one after the other; one element of padding a row sends each to a bank of its own.
#include "../element.cuh"

template <typename T, int TILE, int PAD>
__global__ void __launch_bounds__(TILE* TILE)
    gemm_bank_conflicts(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, int M, int N,
                        int K, int lda, int ldb, int ldc) {
  __shared__ T a_tile[TILE][TILE];
  __shared__ T b_tile[TILE][TILE + PAD];

  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;

  Accumulator<T> sum{};
  for (int k0 = 0; k0 < K; k0 += TILE) {
    a_tile[y][x] = row < M && k0 + x < K ? A[static_cast<size_t>(row) * lda + k0 + x] : T{};
    b_tile[x][y] = k0 + y < K && column < N ? B[static_cast<size_t>(k0 + y) * ldb + column] : T{};
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE; ++k) sum += widen(a_tile[y][k]) * widen(b_tile[x][k]);
    __syncthreads();
  }
  if (row < M && column < N) C[static_cast<size_t>(row) * ldc + column] = narrow<T>(sum);
}
