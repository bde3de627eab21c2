// The number of elements is a product of two ints that only 64 bits can hold: no thread is below it.
// To be found: a signed overflow.
extern "C" __global__ void kernel(const float* x, float* y, int rows, int columns) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FIXED
  const long long count = static_cast<long long>(rows) * columns;
#else
  const int count = rows * columns;  // BUG
#endif
  if (i < count) y[i] = x[i];
}
