// The last block to count itself adds up what all blocks have stored, and nothing makes their stores visible
// before their counts.
// To be found: a race between blocks on `partial`.
extern "C" __global__ void kernel(const float* x, float* total, int n, float* partial, int* finished) {
  __shared__ bool last;
  const int t = threadIdx.x;
  if (t == 0) {
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x; i < n && i < (blockIdx.x + 1) * blockDim.x; ++i) sum += x[i];
    partial[blockIdx.x] = sum;  // BUG
#ifdef FIXED
    __threadfence();
#endif
    last = atomicAdd(finished, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && t == 0) {
#ifdef FIXED
    __threadfence();
#endif
    float sum = 0;
    for (int i = 0; i < gridDim.x; ++i) sum += partial[i];  // BUG
    total[0] = sum;
  }
}
