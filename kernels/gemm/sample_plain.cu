// The plain rival of the block form: a one-dimensional grid, one thread a flat offset into C.
//
// Row and column are divided out of the offset, so neighbouring threads share a row of A and read
// neighbouring columns of B, except where the offset wraps round to the next row.
#include "element.cuh"

template <typename T>
__global__ void gemm_sample_plain(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C,
                                  int M, int N, int K, int lda, int ldb, int ldc) {
  const size_t offset = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (offset >= static_cast<size_t>(M) * N) return;
  const size_t row = offset / N, column = offset % N;

  Accumulator<T> sum{};
  for (int k = 0; k < K; ++k) sum += widen(A[row * lda + k]) * widen(B[static_cast<size_t>(k) * ldb + column]);
  C[row * ldc + column] = narrow<T>(sum);
}
