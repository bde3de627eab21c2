// Lanes without an element leave, and the others go on to read their registers.
// To be found: a shuffle from lanes that have exited, or the wrong numbers that come of it.
extern "C" __global__ void kernel(const float* x, float* total, int n) {
  const int lane = threadIdx.x;
#ifdef FIXED
  float sum = lane < n ? x[lane] : 0;
#else
  if (lane >= n) return;  // BUG
  float sum = x[lane];
#endif
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);  // BUG
  if (lane == 0) total[0] = sum;
}
