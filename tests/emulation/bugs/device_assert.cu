// What the kernel takes for granted of its input does not hold.
// To be found: the assertion that fails.
#include <assert.h>

extern "C" __global__ void kernel(const int* x, int* y, int n) {
  const int i = threadIdx.x;
  if (i >= n) return;
#ifndef FIXED
  assert(x[i] >= 0);  // BUG
#endif
  y[i] = x[i] < 0 ? -x[i] : x[i];
}
