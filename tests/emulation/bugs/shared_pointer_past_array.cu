// A pointer walks from the end of one shared array into its neighbour.
// To be found: an access of `second` by way of `first`, or a race with what is stored there.
extern "C" __global__ void kernel(const float* x, float* y, int n) {
  __shared__ float first[64];
  __shared__ float second[64];
  const int i = threadIdx.x;
  first[i] = x[i];
  second[i] = -x[i];
  __syncthreads();
#ifdef FIXED
  const int last = 64;
#else
  const int last = 66;
#endif
  const float* at = first;
  float sum = 0;
  for (int k = 0; k < last; ++k) sum += *at++;  // BUG
  y[i] = sum + second[i];
}
