// C = A·B in float32 by a TM×TN register tile a thread: the shipped register_tile kernel with macros for
// parameters, so that tuners which know no templates compile it too.
extern "C" __global__ void __launch_bounds__((BM / TM) * (BN / TN))
    register_tile_macros(const float* A, const float* B, float* C, int M, int N, int K) {
  constexpr int THREADS_M = BM / TM, THREADS_N = BN / TN, THREADS = THREADS_M * THREADS_N;
  __shared__ float a_tile[BM][BK];
  __shared__ float b_tile[BK][BN];

  const int thread = threadIdx.x;
  const int x = thread % THREADS_N, y = thread / THREADS_N;
  const int row0 = blockIdx.y * BM, column0 = blockIdx.x * BN;

  float sum[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    for (int i = thread; i < BM * BK; i += THREADS) {
      const int row = row0 + i / BK, k = k0 + i % BK;
      a_tile[i / BK][i % BK] = row < M && k < K ? A[static_cast<size_t>(row) * K + k] : 0.0f;
    }
    for (int i = thread; i < BK * BN; i += THREADS) {
      const int k = k0 + i / BN, column = column0 + i % BN;
      b_tile[i / BN][i % BN] = k < K && column < N ? B[static_cast<size_t>(k) * N + column] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      float a[TM], b[TN];
#pragma unroll
      for (int i = 0; i < TM; ++i) a[i] = a_tile[y + i * THREADS_M][k];
#pragma unroll
      for (int j = 0; j < TN; ++j) b[j] = b_tile[k][x + j * THREADS_N];
#pragma unroll
      for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < TN; ++j) sum[i][j] += a[i] * b[j];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int row = row0 + y + i * THREADS_M;
#pragma unroll
    for (int j = 0; j < TN; ++j) {
      const int column = column0 + x + j * THREADS_N;
      if (row < M && column < N) C[static_cast<size_t>(row) * N + column] = sum[i][j];
    }
  }
}
