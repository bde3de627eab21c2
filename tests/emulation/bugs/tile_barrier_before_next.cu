// The barrier between using a tile and filling it again is missing.
// To be found: a race in shared memory between the marked loads and the marked stores of the next step.
extern "C" __global__ void kernel(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float a[16][16], b[16][16];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
  float sum = 0;
  for (int k0 = 0; k0 < K; k0 += 16) {
    a[y][x] = row < M && k0 + x < K ? A[row * K + k0 + x] : 0;        // BUG
    b[y][x] = k0 + y < K && column < N ? B[(k0 + y) * N + column] : 0;  // BUG
    __syncthreads();
    for (int k = 0; k < 16; ++k) sum += a[y][k] * b[k][x];  // BUG
#ifdef FIXED
    __syncthreads();
#endif
  }
  if (row < M && column < N) C[row * N + column] = sum;
}
