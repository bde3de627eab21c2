// Rung 4 in double precision: the tensor cores have products of float64 too (DMMA), rounded as IEEE 754 asks, at twice
// the rate of the other units.
//
// The instruction of depth 16 came with Hopper; that of depth 4 is what earlier GPUs have. It takes 64 cycles at a
// depth of 16, so what has to be right is not how many loads there are but that none of them is waited for, and that
// operands come where they are used: an operand is a run of up to 16 registers, and what a wider read would bring
// lies apart in it. The walk is that of mma_sync.
//
// On an H200 (cold L2) 55.0 TFLOP/s at 4096³ and 55.2 at 8192³, 0.90 and 0.91 of cuBLAS 13.1. Nsight Compute sees the
// unit busy in 86 % of the cycles; cuBLAS, with the same tiles, keeps it busy in 98 %.
#include "mma_walk.cuh"

template <int ROWS, int DEPTH, int BM, int BN, int BK, int WM, int WN, int STAGES, int GROUP, int AHEAD, int BLOCKS>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32, BLOCKS)
    gemm_dmma(const double* __restrict__ A, const double* __restrict__ B, double* __restrict__ C, int M, int N, int K,
                  int lda, int ldb, int ldc) {
  multiply_tile<Dmma<ROWS, DEPTH>, BM, BN, BK, WM, WN, STAGES, GROUP, AHEAD>(A, B, C, M, N, K, lda, ldb, ldc);
}
