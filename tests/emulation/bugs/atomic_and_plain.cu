// Most threads count atomically, one resets the counter by a plain store without waiting for anyone.
// To be found: a race between the marked store and the marked atomic operation.
extern "C" __global__ void kernel(const float* x, int* count, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef FIXED
  if (i == 0) count[0] = 0;  // BUG
#endif
  if (i < n && x[i] >= 0) atomicAdd(&count[0], 1);  // BUG
}
