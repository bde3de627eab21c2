// A block of 33 × 33 threads, of which CUDA allows 1024.
// To be found: a launch that is refused.
extern "C" __global__ void kernel(const float* A, const float* B, float* C, int M, int N, int K) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= M || column >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + column];
  C[row * N + column] = sum;
}
