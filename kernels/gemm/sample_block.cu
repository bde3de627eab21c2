// The block form that the CUDA toolkit's matrix multiplication sample made known.
//
// One block computes one BLOCK×BLOCK sub-matrix of C and walks A along a row of sub-matrices and B
// down a column of them. Same idea as rung 2, without edge handling: every size has to be a
// multiple of BLOCK, and a shape where that does not hold is pruned with that reason.
#include "element.cuh"

template <typename T, int BLOCK>
__global__ void __launch_bounds__(BLOCK* BLOCK)
    gemm_sample_block(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, int N, int K) {
  const int x = threadIdx.x, y = threadIdx.y;
  const T* a = A + static_cast<size_t>(blockIdx.y) * BLOCK * K;
  const T* b = B + static_cast<size_t>(blockIdx.x) * BLOCK;

  Accumulator<T> sum{};
  for (int step = 0; step < K / BLOCK; ++step) {
    __shared__ T a_block[BLOCK][BLOCK];
    __shared__ T b_block[BLOCK][BLOCK];
    a_block[y][x] = a[static_cast<size_t>(y) * K + x];
    b_block[y][x] = b[static_cast<size_t>(y) * N + x];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BLOCK; ++k) sum += widen(a_block[y][k]) * widen(b_block[k][x]);
    __syncthreads();
    a += BLOCK;
    b += static_cast<size_t>(BLOCK) * N;
  }
  C[(static_cast<size_t>(blockIdx.y) * BLOCK + y) * N + blockIdx.x * BLOCK + x] = narrow<T>(sum);
}
