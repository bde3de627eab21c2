// The sum begins with whatever the shared accumulator holds.
// To be found: the marked line reads shared memory that nobody has written.
extern "C" __global__ void kernel(const float* x, float* sums, int n) {
  __shared__ float sum[64];
  const int t = threadIdx.x;
#ifdef FIXED
  sum[t] = 0;
#endif
  for (int i = blockIdx.x * 64 + t; i < n; i += gridDim.x * 64) sum[t] += x[i];  // BUG
  __syncthreads();
  if (t == 0) {
    float total = 0;
    for (int i = 0; i < 64; ++i) total += sum[i];
    sums[blockIdx.x] = total;
  }
}
