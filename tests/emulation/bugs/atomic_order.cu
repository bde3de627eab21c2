// A sum of floats in whatever order the threads come: right to rounding, another one every time.
// To be found: results that depend on the order of threads.
extern "C" __global__ void kernel(const float* x, float* total, int n) {
#ifdef FIXED
  if (blockIdx.x + threadIdx.x) return;
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i];
  total[0] = sum;
#else
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&total[0], x[i]);
#endif
}
