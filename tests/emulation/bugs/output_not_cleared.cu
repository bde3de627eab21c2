// The kernel adds to an output that nobody has set to anything.
// To be found: a read of global memory that nobody has written, or the wrong numbers that come of it.
extern "C" __global__ void kernel(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
#ifdef FIXED
  y[i] = 2 * x[i];
#else
  y[i] += 2 * x[i];
#endif
}
