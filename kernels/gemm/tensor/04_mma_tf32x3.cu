// Rung 4 in 3xTF32: products nearly as exact as those of float32, on tensor cores.
//
// Each operand is the sum of two of 11 bits. Three of the four products of such sums are added up; the fourth, of the
// two smaller parts, is below 2^-22 of the whole. Three instructions for one leave at most a third of the rate of
// tf32, which is still more than that of float32. A precision class of its own: its bound is nearly that of float32, and it
// is never compared with tf32. mma_class.cuh says what it does for the sums.
//
// On an H200 (cold L2) 64 TFLOP/s at 4096³ and 65 at 8192³, 1.25 and 1.27 of cuBLAS 13.1 in float32, which is as exact.
// Of the instructions that are issued two fifths multiply: splitting operands and adding up take the rest.
#include "mma_walk.cuh"

template <int BM, int BN, int BK, int WM, int WN, int STAGES, int GROUP, int AHEAD, int BLOCKS>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32, BLOCKS)
    gemm_mma_tf32x3(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N,
                    int K, int lda, int ldb, int ldc) {
  multiply_tile<Tf32x3, BM, BN, BK, WM, WN, STAGES, GROUP, AHEAD>(A, B, C, M, N, K, lda, ldb, ldc);
}
