// Pitfall: a barrier that nothing needs.
//
// Rung 4. With BARRIERS the block meets after each step of the inner loop, though between the two barriers that
// frame it nobody writes to the tiles: warps that are ahead wait BK times a tile instead of twice.
#include "register_tile.cuh"

template <typename T, int BM, int BN, int BK, int TM, int TN, int BARRIERS>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
    gemm_barriers(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, int M, int N, int K,
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
      multiply<TM, TN>(sum, a_tile, b_tile, x, y, k);
      if (BARRIERS) __syncthreads();
    }
    __syncthreads();
  }
  store<BM, BN, T>(C, sum, row0, column0, x, y, M, N, ldc);
}
