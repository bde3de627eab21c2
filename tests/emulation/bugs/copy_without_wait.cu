// Asynchronous copies are committed and never waited for.
// To be found: the marked load reads what a copy is still on its way to.
#include <cuda_pipeline.h>

extern "C" __global__ void kernel(const float* x, float* y, int n) {
  __shared__ float values[128];
  const int i = blockIdx.x * 128 + threadIdx.x;
  values[threadIdx.x] = 0;
  if (i < n) __pipeline_memcpy_async(&values[threadIdx.x], &x[i], 4);  // BUG
  __pipeline_commit();
#ifdef FIXED
  __pipeline_wait_prior(0);
#endif
  __syncthreads();
  if (i < n) y[i] = values[127 - threadIdx.x];  // BUG
}
