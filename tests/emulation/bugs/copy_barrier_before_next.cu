// A stage is refilled by asynchronous copies while other threads still use it.
// To be found: a race in shared memory between the marked loads and the marked copies.
#include <cuda_pipeline.h>

extern "C" __global__ void kernel(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float a[2][16][16], b[2][16][16];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
  auto fetch = [&](int k0, int stage) {
    const bool in_a = row < M && k0 + x < K, in_b = k0 + y < K && column < N;
    __pipeline_memcpy_async(&a[stage][y][x], in_a ? &A[row * K + k0 + x] : A, 4, in_a ? 0 : 4);        // BUG
    __pipeline_memcpy_async(&b[stage][y][x], in_b ? &B[(k0 + y) * N + column] : B, 4, in_b ? 0 : 4);  // BUG
    __pipeline_commit();
  };
  fetch(0, 0);
  float sum = 0;
  for (int k0 = 0, now = 0; k0 < K; k0 += 16, now ^= 1) {
    fetch(k0 + 16, now ^ 1);
    __pipeline_wait_prior(1);
    __syncthreads();
    for (int k = 0; k < 16; ++k) sum += a[now][y][k] * b[now][k][x];  // BUG
#ifdef FIXED
    __syncthreads();
#endif
  }
  if (row < M && column < N) C[row * N + column] = sum;
}
