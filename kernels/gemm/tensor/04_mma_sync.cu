// Rung 4: fragments under control: mma.sync, fed by ldmatrix.
//
// Adds to rung 3: the instruction itself, whose operands lie in lanes that the documentation names. ldmatrix brings
// four 8×8 matrices at once, transposed where that is wanted, so that a row-major B costs nothing; tiles come by
// asynchronous copies, STAGES - 1 of them under way, into rows whose chunks of 16 bytes are permuted, so that neither
// a copy nor an ldmatrix meets a bank twice; fragments are read a step ahead of the products. mma_walk.cuh has the
// walk along K, mma_class.cuh what the classes differ in.
//
// Any leading dimension: copies take what base and rows allow, 16, 8 or 4 bytes, and where that is less, elements
// pass through registers. This is what runs where TMA cannot, and on every GPU since compute capability 8.0.
//
// int8 sums in int32. Its instruction wants neighbours along K in one register, and B has its neighbours along N:
// ldmatrix transposes pairs of columns, and a byte permute parts them.
//
// On an H200 (cold L2) in bfloat16 427 TFLOP/s at 4096³ and 459 at 8192³, 0.55 and 0.57 of cuBLAS 13.1 with its
// wgmma. By Nsight Compute's count of busy cycles mma.sync could reach some 630, where wgmma has 990.
// In int8 750 and 826, 5.9 and 6.4 times cuBLAS and cuBLASLt, which have nothing fast for a B that lies along N.
#include "mma_walk.cuh"

template <typename T, int BM, int BN, int BK, int WM, int WN, int STAGES, int GROUP, int AHEAD, int BLOCKS>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32, BLOCKS)
    gemm_mma_sync(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, int M, int N, int K,
                  int lda, int ldb, int ldc) {
  multiply_tile<T, BM, BN, BK, WM, WN, STAGES, GROUP, AHEAD>(A, B, C, M, N, K, lda, ldb, ldc);
}
