// Lanes of a warp exchange values through shared memory as if they marched in step.
// To be found: a race in shared memory within a warp.
extern "C" __global__ void kernel(const float* x, float* y, int n) {
  __shared__ float values[128];
  const int i = blockIdx.x * 128 + threadIdx.x, lane = threadIdx.x % 32;
  values[threadIdx.x] = i < n ? x[i] : 0;  // BUG
#ifdef FIXED
  __syncwarp();
#endif
  if (i < n) y[i] = values[threadIdx.x - lane + (lane + 1) % 32];  // BUG
}
