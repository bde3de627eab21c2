// Two groups of copies are under way and the wait allows both: prior(1) is needed where prior(2) stands.
// To be found: the marked load reads what a copy is still on its way to.
#include <cuda_pipeline.h>

extern "C" __global__ void kernel(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float a[2][16][16], b[2][16][16];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
  auto fetch = [&](int k0, int stage) {
    a[stage][y][x] = b[stage][y][x] = 0;
    if (row < M && k0 + x < K) __pipeline_memcpy_async(&a[stage][y][x], &A[row * K + k0 + x], 4);         // BUG
    if (k0 + y < K && column < N) __pipeline_memcpy_async(&b[stage][y][x], &B[(k0 + y) * N + column], 4);  // BUG
    __pipeline_commit();
  };
  fetch(0, 0);
  float sum = 0;
  for (int k0 = 0, now = 0; k0 < K; k0 += 16, now ^= 1) {
    fetch(k0 + 16, now ^ 1);
#ifdef FIXED
    __pipeline_wait_prior(1);
#else
    __pipeline_wait_prior(2);
#endif
    __syncthreads();
    for (int k = 0; k < 16; ++k) sum += a[now][y][k] * b[now][k][x];  // BUG
    __syncthreads();
  }
  if (row < M && column < N) C[row * N + column] = sum;
}
