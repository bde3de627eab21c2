// A loop takes one step too many through an array that each thread has in registers.
// To be found: an index outside its array.
extern "C" __global__ void kernel(const float* x, float* y, int n, int each) {
  float values[4] = {};
  const int first = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
#ifdef FIXED
  const int last = each;
#else
  const int last = each + 1;
#endif
  for (int j = 0; j < last; ++j) values[j] = first + j < n ? x[first + j] : 0;  // BUG
  for (int j = 0; j < 4; ++j)
    if (first + j < n) y[first + j] = 2 * values[j];
}
