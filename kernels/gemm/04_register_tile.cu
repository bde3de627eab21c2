// Rung 4: each thread keeps a TM×TN tile of C in registers.
//
// Adds to rung 2: a value read from shared memory serves TN (or TM) multiply-adds instead of one,
// so the inner loop does TM·TN of them for TM + TN shared loads. A block computes BM×BN of C with
// (BM/TM)·(BN/TN) threads, in steps of BK along K.
//
// A thread's rows and columns are interleaved with its neighbours' (stride BM/TM and BN/TN): the
// threads of a warp then read neighbouring words of b_tile and write neighbouring elements of C.
#include "element.cuh"

template <typename T, int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
    gemm_register_tile(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, int M, int N,
                       int K, int lda, int ldb, int ldc) {
  constexpr int THREADS_M = BM / TM, THREADS_N = BN / TN, THREADS = THREADS_M * THREADS_N;
  static_assert(BM % TM == 0 && BN % TN == 0, "a thread tile divides the block tile");

  __shared__ T a_tile[BM][BK];
  __shared__ T b_tile[BK][BN];

  const int thread = threadIdx.x;
  const int x = thread % THREADS_N, y = thread / THREADS_N;
  const int row0 = blockIdx.y * BM, column0 = blockIdx.x * BN;

  Accumulator<T> sum[TM][TN] = {};
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
      Accumulator<T> a[TM], b[TN];
#pragma unroll
      for (int i = 0; i < TM; ++i) a[i] = widen(a_tile[y + i * THREADS_M][k]);
#pragma unroll
      for (int j = 0; j < TN; ++j) b[j] = widen(b_tile[k][x + j * THREADS_N]);
#pragma unroll
      for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < TN; ++j) sum[i][j] += a[i] * b[j];
      }
    }
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int row = row0 + y + i * THREADS_M;
#pragma unroll
    for (int j = 0; j < TN; ++j) {
      const int column = column0 + x + j * THREADS_N;
      if (row < M && column < N) C[static_cast<size_t>(row) * ldc + column] = narrow<T>(sum[i][j]);
    }
  }
}
