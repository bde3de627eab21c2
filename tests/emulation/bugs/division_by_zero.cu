// The stride is a quotient that is zero for a small problem, and it divides.
// To be found: a division by zero.
extern "C" __global__ void kernel(const int* x, int* y, int n, int parts) {
  const int i = threadIdx.x;
#ifdef FIXED
  const int each = (n + parts - 1) / parts;
#else
  const int each = n / parts;
#endif
  if (i < n) y[i] = x[i] + i / each;  // BUG
}
