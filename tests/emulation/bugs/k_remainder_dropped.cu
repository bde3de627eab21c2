// K / 16 steps instead of K / 16 rounded up: the last, partial tile is left out.
// To be found: wrong numbers; every access is right.
extern "C" __global__ void kernel(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float a[16][16], b[16][16];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
#ifdef FIXED
  const int steps = (K + 15) / 16;
#else
  const int steps = K / 16;
#endif
  float sum = 0;
  for (int k0 = 0; k0 < 16 * steps; k0 += 16) {
    a[y][x] = row < M && k0 + x < K ? A[row * K + k0 + x] : 0;
    b[y][x] = k0 + y < K && column < N ? B[(k0 + y) * N + column] : 0;
    __syncthreads();
    for (int k = 0; k < 16; ++k) sum += a[y][k] * b[k][x];
    __syncthreads();
  }
  if (row < M && column < N) C[row * N + column] = sum;
}
