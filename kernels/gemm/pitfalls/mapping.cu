// Pitfall: threadIdx.x along the rows of C.
//
// Rungs 0 and 1 in one source: one thread one element of C, a block of 32×8 threads. With BY_ROWS the threads of a
// warp lie in 32 rows, so each load of A and each store to C touches 32 sectors; without, they lie in 32
// columns, a load of A is a broadcast and a load of B or a store to C one run of 128 bytes.
#include "../element.cuh"

template <typename T, int BY_ROWS>
__global__ void gemm_mapping(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, int M,
                             int N, int K, int lda, int ldb, int ldc) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  const int row = BY_ROWS ? x : y, column = BY_ROWS ? y : x;
  if (row >= M || column >= N) return;

  const T* a = A + static_cast<size_t>(row) * lda;
  const T* b = B + column;
  Accumulator<T> sum{};
  for (int k = 0; k < K; ++k, b += ldb) sum += widen(a[k]) * widen(*b);
  C[static_cast<size_t>(row) * ldc + column] = narrow<T>(sum);
}
