// Rung 1: one thread one element of C, threadIdx.x along the columns.
//
// Adds to rung 0: nothing but the mapping. The threads of a warp now read one element of A (a
// broadcast) and 32 neighbouring ones of B, and write 32 neighbouring ones of C, so each access is
// a single coalesced run. Still 2·M·N·K loads for 2·M·N·K operations: half an operation a load.
#include "element.cuh"

template <typename T>
__global__ void gemm_naive(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C,
                           int M, int N, int K, int lda, int ldb, int ldc) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= M || column >= N) return;

  const T* a = A + static_cast<size_t>(row) * lda;
  const T* b = B + column;
  Accumulator<T> sum{};
  for (int k = 0; k < K; ++k, b += ldb) sum += widen(a[k]) * widen(*b);
  C[static_cast<size_t>(row) * ldc + column] = narrow<T>(sum);
}
