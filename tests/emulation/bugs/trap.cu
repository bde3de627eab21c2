// A case that was thought impossible, and is not.
// To be found: the trap.
extern "C" __global__ void kernel(const int* x, int* y, int n) {
  const int i = threadIdx.x;
  if (i >= n) return;
  switch (x[i] & 3) {
    case 0: y[i] = 1; break;
    case 1: y[i] = 2; break;
    case 2: y[i] = 3; break;
    default:
#ifdef FIXED
      y[i] = 4;
#else
      __trap();  // BUG
#endif
  }
}
