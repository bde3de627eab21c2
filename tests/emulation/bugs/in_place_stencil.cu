// Every element is replaced by its mean with the next one, which its own thread replaces meanwhile.
// To be found: a race on y, both sides in the marked line.
extern "C" __global__ void kernel(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i + 1 >= n) return;
#ifdef FIXED
  y[i] = 0.5f * (x[i] + x[i + 1]);
#else
  y[i] = 0.5f * (y[i] + y[i + 1]);  // BUG
#endif
}
