// Pitfall: the test for the matrix's edge in the inner loop.
//
// Rung 4, whose tiles hold zeros beyond the edges: the products there add nothing, and need no test. With TESTED
// each product is tested all the same, which is TM·TN comparisons a step beside as many multiply-adds.
#include "register_tile.cuh"

template <typename T, int BM, int BN, int BK, int TM, int TN, int TESTED>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
    gemm_edge_test(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, int M, int N, int K,
                   int lda, int ldb, int ldc) {
  using Of = Tile<BM, BN, BK, TM, TN>;
  __shared__ T a_tile[BM][BK];
  __shared__ T b_tile[BK][BN];
  const int thread = threadIdx.x, x = thread % Of::THREADS_N, y = thread / Of::THREADS_N;
  const int row0 = blockIdx.y * BM, column0 = blockIdx.x * BN;

  Accumulator<T> sum[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    stage_a(a_tile, A, row0, k0, M, K, lda, thread, Of::THREADS);
    stage_b(b_tile, B, k0, column0, K, N, ldb, thread, Of::THREADS);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      Accumulator<T> a[TM], b[TN];
#pragma unroll
      for (int i = 0; i < TM; ++i) a[i] = widen(a_tile[y + i * Of::THREADS_M][k]);
#pragma unroll
      for (int j = 0; j < TN; ++j) b[j] = widen(b_tile[k][x + j * Of::THREADS_N]);
#pragma unroll
      for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < TN; ++j) {
          const int row = row0 + y + i * Of::THREADS_M, column = column0 + x + j * Of::THREADS_N;
          if (!TESTED || (row < M && column < N && k0 + k < K)) sum[i][j] += a[i] * b[j];
        }
      }
    }
    __syncthreads();
  }
  store<BM, BN, T>(C, sum, row0, column0, x, y, M, N, ldc);
}
