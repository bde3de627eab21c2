// A column index one too large: element 16 of a row of 16 is the first of the next row.
// To be found: an index outside its array, at the marked store.
extern "C" __global__ void kernel(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float a[16][16], b[16][16];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
#ifdef FIXED
  const int shift = 0;
#else
  const int shift = 1;
#endif
  float sum = 0;
  for (int k0 = 0; k0 < K; k0 += 16) {
    a[y][x + shift] = row < M && k0 + x < K ? A[row * K + k0 + x] : 0;  // BUG
    b[y][x] = k0 + y < K && column < N ? B[(k0 + y) * N + column] : 0;
    __syncthreads();
    for (int k = 0; k < 16; ++k) sum += a[y][k] * b[k][x];
    __syncthreads();
  }
  if (row < M && column < N) C[row * N + column] = sum;
}
