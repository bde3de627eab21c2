// Half of a warp waits at the block's barrier while the other half waits for it at the warp's.
// To be found: a deadlock.
extern "C" __global__ void kernel(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FIXED
  __syncthreads();
  __syncwarp();
#else
  if (threadIdx.x % 32 < 16) {
    __syncthreads();  // BUG
  } else {
    __syncwarp();  // BUG
    __syncthreads();
  }
#endif
  if (i < n) y[i] = x[i];
}
