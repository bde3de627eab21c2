// Pitfall: launch bounds that leave a thread fewer registers than it uses.
//
// Rung 4 with 8×8 sums a thread. BLOCKS is the number of blocks that __launch_bounds__ promises an SM: at 256
// threads a block two leave a thread 128 registers, which is enough, and four leave it 64. The sums alone take
// those, so the compiler moves them to local memory and back in the inner loop.
#include "register_tile.cuh"

template <typename T, int BM, int BN, int BK, int TM, int TN, int BLOCKS>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), BLOCKS)
    gemm_spills(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, int M, int N, int K,
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
    for (int k = 0; k < BK; ++k) multiply<TM, TN>(sum, a_tile, b_tile, x, y, k);
    __syncthreads();
  }
  store<BM, BN, T>(C, sum, row0, column0, x, y, M, N, ldc);
}
