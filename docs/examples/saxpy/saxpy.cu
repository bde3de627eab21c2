// y = a·x + y. Each thread takes PER_THREAD elements, a grid's width apart, so accesses coalesce.
extern "C" __global__ void saxpy(const float* __restrict__ x, float* __restrict__ y, float a, int n) {
  const int width = gridDim.x * blockDim.x;
  const int first = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
  for (int i = 0; i < PER_THREAD; ++i) {
    const int at = first + i * width;
    if (at < n) y[at] = a * x[at] + y[at];
  }
}

// The same by the plainest means: what every configuration is compared with.
extern "C" __global__ void saxpy_plain(const float* x, float* y, float a, int n) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < n) y[at] = a * x[at] + y[at];
}
