// Threads outside the matrix read rows and columns that are not there.
// To be found: reads past the end of A and of B.
extern "C" __global__ void kernel(const float* A, const float* B, float* C, int M, int N, int K) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
#ifdef FIXED
  if (row >= M || column >= N) return;
#endif
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + column];  // BUG
  if (row < M && column < N) C[row * N + column] = sum;
}
