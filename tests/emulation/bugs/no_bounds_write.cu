// The last block has more threads than elements are left.
// To be found: a write past the end of y.
extern "C" __global__ void kernel(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float value = i < n ? 2 * x[i] : 0;
#ifdef FIXED
  if (i >= n) return;
#endif
  y[i] = value;  // BUG
}
