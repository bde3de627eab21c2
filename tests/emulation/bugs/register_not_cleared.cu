// A sum in a register that is given its first value only by some threads.
// To be found: wrong numbers.
extern "C" __global__ void kernel(const float* A, float* sums, int M, int K) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M) return;
  float sum[2];
  sum[0] = 0;
#ifdef FIXED
  sum[1] = 0;
#endif
  for (int k = 0; k < K; ++k) sum[k & 1] += A[row * K + k];
  sums[row] = sum[0] + sum[1];
}
