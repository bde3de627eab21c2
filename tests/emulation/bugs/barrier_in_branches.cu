// Each branch has a barrier of its own, and threads of one block take both branches.
// To be found: threads of a block that meet at different barriers.
extern "C" __global__ void kernel(const float* x, float* y, int n) {
  __shared__ float values[64];
  const int i = blockIdx.x * 64 + threadIdx.x;
  values[threadIdx.x] = i < n ? x[i] : 0;
#ifdef FIXED
  __syncthreads();
  const float other = i % 2 == 0 ? values[threadIdx.x + 1] : -values[threadIdx.x - 1];
#else
  float other;
  if (i % 2 == 0) {
    __syncthreads();  // BUG
    other = values[threadIdx.x + 1];
  } else {
    __syncthreads();  // BUG
    other = -values[threadIdx.x - 1];
  }
#endif
  if (i < n) y[i] = other;
}
