// The row in C forgets the block: blocks of one column all write the same rows.
// To be found: two blocks that write one element of C.
extern "C" __global__ void kernel(const float* A, const float* B, float* C, int M, int N, int K) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= M || column >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + column];
#ifdef FIXED
  C[row * N + column] = sum;
#else
  C[threadIdx.y * N + column] = sum;  // BUG
#endif
}
