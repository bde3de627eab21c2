// Threads of a block count into shared bins by plain increments.
// To be found: a race in shared memory, both sides in the marked line.
extern "C" __global__ void kernel(const int* x, int* counts, int n) {
  __shared__ int bins[16];
  const int t = threadIdx.x;
  if (t < 16) bins[t] = 0;
  __syncthreads();
  for (int i = t; i < n; i += blockDim.x) {
#ifdef FIXED
    atomicAdd(&bins[x[i] & 15], 1);
#else
    bins[x[i] & 15] += 1;  // BUG
#endif
  }
  __syncthreads();
  if (t < 16) counts[t] = bins[t];
}
