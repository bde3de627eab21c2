// Rung 7: tiles arrive by asynchronous copies, several steps ahead.
//
// Adds to rung 6: cp.async, which moves data from global to shared memory past the registers and without anyone
// waiting. STAGES slots of shared memory are filled in turn, so that a copy has STAGES - 1 steps' time to arrive,
// and what rung 6 spent on registers and instructions to fetch ahead goes to the products. Fragments are read a
// step of k ahead, and blocks take tiles in an order that the second-level cache likes. pipeline.cuh has the
// walk along K, and what it does so that multiply-adds meet no conflicts in the register file.
//
// On an H200 (cold L2) 50.1 TFLOP/s at 2048³, 52.2 at 4096³ and 52.3 at 8192³: 1.02, 1.01 and 1.02 of cuBLAS 13.1.
#include "pipeline.cuh"

template <typename T, int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int GROUP, int UNROLL,
          int BURSTS, int PAIRED>
__device__ __forceinline__ void compute_tile(const T* A, const T* B, Output<T>* C, int M, int N, int K, int lda,
                                             int ldb, int ldc) {
  extern __shared__ __align__(16) unsigned char memory[];
  const Origin origin = tile_origin<BM, BN, GROUP>(blockIdx.x, M, N);
  const Pipeline<T, BM, BN, BK, WM, WN, TM, TN, STAGES, UNROLL, BURSTS, PAIRED> pipeline{
      A + static_cast<size_t>(origin.row) * lda,
      B + origin.column,
      M - origin.row,
      N - origin.column,
      K,
      lda,
      ldb,
      chunks_aligned(B, ldb) && N % Chunk<T>::WIDTH == 0,
      reinterpret_cast<T*>(memory)};
  T sum[TM][TN] = {};
  pipeline.run(sum);
  pipeline.store(sum, C + static_cast<size_t>(origin.row) * ldc + origin.column, ldc);
}

template <typename T, int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int GROUP, int UNROLL,
          int BURSTS, int PAIRED, int BLOCKS>
__global__ void __launch_bounds__((BM / WM) * (BN / WN) * 32, BLOCKS)
    gemm_async_pipeline(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, int M, int N,
                        int K, int lda, int ldb, int ldc) {
  compute_tile<T, BM, BN, BK, WM, WN, TM, TN, STAGES, GROUP, UNROLL, BURSTS, PAIRED>(A, B, C, M, N, K, lda, ldb, ldc);
}

// A batch: a product for each blockIdx.z, its matrices so many elements behind the first ones.
template <typename T, int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int GROUP, int UNROLL,
          int BURSTS, int PAIRED, int BLOCKS>
__global__ void __launch_bounds__((BM / WM) * (BN / WN) * 32, BLOCKS)
    gemm_batched_pipeline(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, int M, int N,
                          int K, int lda, int ldb, int ldc, long long stride_a, long long stride_b,
                          long long stride_c) {
  const long long batch = blockIdx.z;
  compute_tile<T, BM, BN, BK, WM, WN, TM, TN, STAGES, GROUP, UNROLL, BURSTS, PAIRED>(
      A + batch * stride_a, B + batch * stride_b, C + batch * stride_c, M, N, K, lda, ldb, ldc);
}
