// The tile of A is loaded without a look at M and K.
// To be found: a read past the end of A.
extern "C" __global__ void kernel(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float a[16][16], b[16][16];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
  float sum = 0;
  for (int k0 = 0; k0 < K; k0 += 16) {
#ifdef FIXED
    a[y][x] = row < M && k0 + x < K ? A[row * K + k0 + x] : 0;
#else
    a[y][x] = A[row * K + k0 + x];  // BUG
#endif
    b[y][x] = k0 + y < K && column < N ? B[(k0 + y) * N + column] : 0;
    __syncthreads();
    for (int k = 0; k < 16; ++k) sum += a[y][k] * b[k][x];
    __syncthreads();
  }
  if (row < M && column < N) C[row * N + column] = sum;
}
