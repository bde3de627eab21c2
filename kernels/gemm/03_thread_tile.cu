// Rung 3: each thread keeps a column of TM elements of C in registers.
//
// Adds to rung 2: a value of B that a thread reads from shared memory serves TM multiply-adds, so a step along
// K takes TM + 1 shared loads for TM of them instead of 2·TM. The TM values of A are the same for all threads
// of a warp that share a row of threads: broadcasts. A block computes BM×BN of C with (BM/TM)·BN threads, in
// steps of BK along K, and reads each element of A for BN and each of B for BM multiply-adds.
//
// A thread's rows are BM/TM apart, its column is its own: a warp writes neighbouring elements of C.
#include "element.cuh"

template <typename T, int BM, int BN, int BK, int TM>
__global__ void __launch_bounds__(BM / TM* BN)
    gemm_thread_tile(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, int M, int N, int K,
                     int lda, int ldb, int ldc) {
  constexpr int THREADS_M = BM / TM, THREADS = THREADS_M * BN;
  static_assert(BM % TM == 0, "a thread tile divides the block tile");

  __shared__ T a_tile[BM][BK];
  __shared__ T b_tile[BK][BN];

  const int thread = threadIdx.x;
  const int x = thread % BN, y = thread / BN;
  const int row0 = blockIdx.y * BM, column0 = blockIdx.x * BN;

  Accumulator<T> sum[TM] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    for (int i = thread; i < BM * BK; i += THREADS) {
      const int row = row0 + i / BK, k = k0 + i % BK;
      a_tile[i / BK][i % BK] = row < M && k < K ? A[static_cast<size_t>(row) * lda + k] : T{};
    }
    for (int i = thread; i < BK * BN; i += THREADS) {
      const int k = k0 + i / BN, column = column0 + i % BN;
      b_tile[i / BN][i % BN] = k < K && column < N ? B[static_cast<size_t>(k) * ldb + column] : T{};
    }
    __syncthreads();

#pragma unroll
    for (int k = 0; k < BK; ++k) {
      const Accumulator<T> b = widen(b_tile[k][x]);
#pragma unroll
      for (int i = 0; i < TM; ++i) sum[i] += widen(a_tile[y + i * THREADS_M][k]) * b;
    }
    __syncthreads();
  }

  const int column = column0 + x;
  if (column >= N) return;
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int row = row0 + y + i * THREADS_M;
    if (row < M) C[static_cast<size_t>(row) * ldc + column] = narrow<T>(sum[i]);
  }
}
