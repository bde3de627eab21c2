// Tiles for the tensor cores are filled again while other warps still load them.
// To be found: a race in shared memory between the marked loads and the marked stores.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

extern "C" __global__ void kernel(const __half* A, const __half* B, float* C, int M, int N, int K) {
  __shared__ __half a[32][16], b[16][16];
  __shared__ float c[2][16][16];
  const int thread = threadIdx.x, warp = thread / 32;
  const int row0 = blockIdx.y * 32, column0 = blockIdx.x * 16;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int k0 = 0; k0 < K; k0 += 16) {
    for (int i = thread; i < 32 * 16; i += 64) {
      const int row = row0 + i / 16, k = k0 + i % 16;
      a[i / 16][i % 16] = row < M && k < K ? A[row * K + k] : __half(0.0f);  // BUG
    }
    for (int i = thread; i < 16 * 16; i += 64) {
      const int k = k0 + i / 16, column = column0 + i % 16;
      b[i / 16][i % 16] = k < K && column < N ? B[k * N + column] : __half(0.0f);  // BUG
    }
    __syncthreads();
    wmma::load_matrix_sync(left, &a[16 * warp][0], 16);  // BUG
    wmma::load_matrix_sync(right, &b[0][0], 16);         // BUG
    wmma::mma_sync(sum, left, right, sum);
#ifdef FIXED
    __syncthreads();
#endif
  }
  wmma::store_matrix_sync(&c[warp][0][0], sum, 16, wmma::mem_row_major);
  __syncwarp();
  for (int i = thread % 32; i < 16 * 16; i += 32) {
    const int row = row0 + 16 * warp + i / 16, column = column0 + i % 16;
    if (row < M && column < N) C[row * N + column] = c[warp][i / 16][i % 16];
  }
}
