// The store looks at M and forgets N: elements beyond a row's end land in the next row.
// To be found: two blocks that write one element of C, and past its last row a write outside it.
extern "C" __global__ void kernel(const float* A, const float* B, float* C, int M, int N, int K) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  float sum = 0;
  if (row < M && column < N)
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + column];
#ifdef FIXED
  if (row < M && column < N) C[row * N + column] = sum;
#else
  if (row < M) C[row * N + column] = sum;  // BUG
#endif
}
