// A tree reduction whose steps are not separated: one thread adds what another is still adding to.
// To be found: a race in shared memory, both sides in the marked line.
extern "C" __global__ void kernel(const float* x, float* sums, int n) {
  __shared__ float partial[256];
  const int t = threadIdx.x, i = blockIdx.x * 256 + t;
  partial[t] = i < n ? x[i] : 0;
  __syncthreads();
  for (int step = 128; step > 0; step /= 2) {
    if (t < step) partial[t] += partial[t + step];  // BUG
#ifdef FIXED
    __syncthreads();
#endif
  }
  if (t == 0) sums[blockIdx.x] = partial[0];
}
