// Every thread waits for its own copies, and no barrier tells it that the others have.
// To be found: a race in shared memory, or a read of what a copy is still on its way to.
#include <cuda_pipeline.h>

extern "C" __global__ void kernel(const float* x, float* y, int n) {
  __shared__ float values[128];
  const int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) __pipeline_memcpy_async(&values[threadIdx.x], &x[i], 4);  // BUG
  __pipeline_commit();
  __pipeline_wait_prior(0);
#ifdef FIXED
  __syncthreads();
#endif
  if (i < n) y[i] = values[127 - threadIdx.x];  // BUG
}
