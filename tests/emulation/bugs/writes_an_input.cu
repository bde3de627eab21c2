// A cast takes the const away, and the kernel normalises its input in place.
// To be found: a write to an input.
extern "C" __global__ void kernel(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float value = 0.5f * x[i];
#ifndef FIXED
  const_cast<float*>(x)[i] = value;  // BUG
#endif
  y[i] = value;
}
