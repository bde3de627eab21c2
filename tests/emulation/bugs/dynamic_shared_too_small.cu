// The launch gives room for one tile where the kernel lays out two.
// To be found: an access past the end of dynamic shared memory.
extern "C" __global__ void kernel(const float* A, const float* B, float* C, int M, int N, int K) {
  extern __shared__ float tiles[];
  const int T = blockDim.x, x = threadIdx.x, y = threadIdx.y;
  float *a = tiles, *b = tiles + T * T;
  const int row = blockIdx.y * T + y, column = blockIdx.x * T + x;
  float sum = 0;
  for (int k0 = 0; k0 < K; k0 += T) {
    a[y * T + x] = row < M && k0 + x < K ? A[row * K + k0 + x] : 0;
    b[y * T + x] = k0 + y < K && column < N ? B[(k0 + y) * N + column] : 0;  // BUG
    __syncthreads();
    for (int k = 0; k < T; ++k) sum += a[y * T + k] * b[k * T + x];
    __syncthreads();
  }
  if (row < M && column < N) C[row * N + column] = sum;
}
