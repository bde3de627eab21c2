// Two buffers, and the one barrier a step that they need is missing.
// To be found: a race in shared memory between the marked stores and the marked loads.
extern "C" __global__ void kernel(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float a[2][16][17], b[2][16][16];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
  a[0][y][x] = row < M && x < K ? A[row * K + x] : 0;
  b[0][y][x] = y < K && column < N ? B[y * N + column] : 0;
  __syncthreads();
  float sum = 0;
  for (int k0 = 0, now = 0; k0 < K; k0 += 16, now ^= 1) {
    const int next = k0 + 16;
    for (int k = 0; k < 16; ++k) sum += a[now][y][k] * b[now][k][x];  // BUG
    if (next < K) {
      a[now ^ 1][y][x] = row < M && next + x < K ? A[row * K + next + x] : 0;        // BUG
      b[now ^ 1][y][x] = next + y < K && column < N ? B[(next + y) * N + column] : 0;  // BUG
    }
#ifdef FIXED
    __syncthreads();
#endif
  }
  if (row < M && column < N) C[row * N + column] = sum;
}
