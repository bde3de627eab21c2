// Rung 0: one thread one element of C, threadIdx.x along the rows.
//
// Neighbouring threads of a warp read rows of A that lie lda elements apart and write to C with a
// stride of ldc: every access of the warp is spread over 32 memory sectors where one run of
// 128 bytes would do. It is the mapping that a loop nest translated word for word ends up with,
// and it is here to show what that costs.
#include "element.cuh"

template <typename T>
__global__ void gemm_uncoalesced(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C,
                                 int M, int N, int K, int lda, int ldb, int ldc) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  const int column = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= M || column >= N) return;

  const T* a = A + static_cast<size_t>(row) * lda;
  const T* b = B + column;
  Accumulator<T> sum{};
  for (int k = 0; k < K; ++k, b += ldb) sum += widen(a[k]) * widen(*b);
  C[static_cast<size_t>(row) * ldc + column] = narrow<T>(sum);
}
