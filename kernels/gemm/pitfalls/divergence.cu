// Pitfall: a branch that the lanes of a warp take differently.
//
// Rung 4 whose threads share out the staging: one half brings the tile of A, the other that of B. With BY_LANE the
// halves are the even and the odd lanes, so each warp walks through both branches with half its lanes idle;
// without, they are whole warps, and each warp walks through one.
#include "register_tile.cuh"

template <typename T, int BM, int BN, int BK, int TM, int TN, int BY_LANE>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
    gemm_divergence(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, int M, int N, int K,
                    int lda, int ldb, int ldc) {
  using Of = Tile<BM, BN, BK, TM, TN>;
  static_assert(Of::THREADS % 64 == 0, "halves of whole warps");
  __shared__ T a_tile[BM][BK];
  __shared__ T b_tile[BK][BN];
  const int thread = threadIdx.x, x = thread % Of::THREADS_N, y = thread / Of::THREADS_N;
  const int row0 = blockIdx.y * BM, column0 = blockIdx.x * BN;
  const int half = BY_LANE ? thread % 2 : thread / 32 % 2;
  const int index = BY_LANE ? thread / 2 : thread / 64 * 32 + thread % 32;

  Accumulator<T> sum[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    if (half == 0) {
      stage_a(a_tile, A, row0, k0, M, K, lda, index, Of::THREADS / 2);
    } else {
      stage_b(b_tile, B, k0, column0, K, N, ldb, index, Of::THREADS / 2);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k) multiply<TM, TN>(sum, a_tile, b_tile, x, y, k);
    __syncthreads();
  }
  store<BM, BN, T>(C, sum, row0, column0, x, y, M, N, ldc);
}
