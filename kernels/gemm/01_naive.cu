// Rung 1: one thread one element of C, threadIdx.x along the columns.
//
// Adds to rung 0: nothing but the mapping. The threads of a warp now read one element of A (a
// broadcast) and 32 neighbouring ones of B, and write 32 neighbouring ones of C, so each access is
// a single coalesced run. Still 2·M·N·K loads for 2·M·N·K operations: half an operation a load.
//
// An operand may lie transposed in memory. It is then only read along its other axis: with B transposed
// the threads of a warp read elements a row apart, and the price of rung 0 comes back.
#include "float8.cuh"

template <typename T, int TRANSPOSE_A, int TRANSPOSE_B>
__global__ void gemm_naive(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C,
                           int M, int N, int K, int lda, int ldb, int ldc) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= M || column >= N) return;

  const T* a = TRANSPOSE_A ? A + row : A + static_cast<size_t>(row) * lda;
  const T* b = TRANSPOSE_B ? B + static_cast<size_t>(column) * ldb : B + column;
  const int step_a = TRANSPOSE_A ? lda : 1, step_b = TRANSPOSE_B ? 1 : ldb;
  Accumulator<T> sum{};
  for (int k = 0; k < K; ++k, a += step_a, b += step_b) sum += widen(*a) * widen(*b);
  C[static_cast<size_t>(row) * ldc + column] = narrow<T>(sum);
}
