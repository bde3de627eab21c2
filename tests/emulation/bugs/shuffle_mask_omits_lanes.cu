// All lanes take part in the shuffle, its mask names half of them.
// To be found: a lane that is not in the mask it gives.
extern "C" __global__ void kernel(const float* A, float* sums, int M, int K) {
  const int lane = threadIdx.x, row = blockIdx.x * blockDim.y + threadIdx.y;
  float sum = 0;
  if (row < M)
    for (int k = lane; k < K; k += 32) sum += A[row * K + k];
#ifdef FIXED
  const unsigned mask = 0xffffffffu;
#else
  const unsigned mask = 0x0000ffffu;
#endif
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(mask, sum, step);  // BUG
  if (lane == 0 && row < M) sums[row] = sum;
}
