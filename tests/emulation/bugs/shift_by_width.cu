// A mask of `bits` ones, written so that all 32 of them shift by the width of the type.
// To be found: a shift that is too far.
extern "C" __global__ void kernel(const int* x, int* y, int bits) {
  const int i = threadIdx.x;
#ifdef FIXED
  const unsigned mask = bits >= 32 ? 0xffffffffu : (1u << bits) - 1;
#else
  const unsigned mask = (1u << bits) - 1;  // BUG
#endif
  y[i] = x[i] & static_cast<int>(mask);
}
