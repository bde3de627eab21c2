// Rung 4 in tf32: float32 in memory and in the sums, operands rounded to 11 bits of significand on their way.
//
// The instruction would cut the lower bits off; rounding to nearest halves the error and takes the bias out of it. A
// comes by ldmatrix, which moves words of 32 bits as well as pairs of 16; B, which it cannot transpose, by reads of 16
// bytes along its rows: one column of each of four tiles, whose columns alternate in C. The walk is that of mma_sync.
//
// On an H200 (cold L2) 178 TFLOP/s at 4096³ and 185 at 8192³, 0.45 and 0.44 of cuBLAS 13.1: what is twice as wide takes
// twice the reads from shared memory, and two instructions more for each operand that it rounds.
#include "mma_walk.cuh"

template <int BM, int BN, int BK, int WM, int WN, int STAGES, int GROUP, int AHEAD, int BLOCKS>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32, BLOCKS)
    gemm_mma_tf32(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K,
                  int lda, int ldb, int ldc) {
  multiply_tile<Tf32, BM, BN, BK, WM, WN, STAGES, GROUP, AHEAD>(A, B, C, M, N, K, lda, ldb, ldc);
}
