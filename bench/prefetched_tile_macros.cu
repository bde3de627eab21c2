// C = A·B in float32: a TM×TN register tile a thread, vector loads, and the next tiles of A and B on their way
// from memory while these are multiplied. With macros for parameters, so that tuners which know no templates
// compile it too. M, N and K are multiples of BM, BN and BK; all pointers are aligned to 16 bytes.
extern "C" __global__ void __launch_bounds__((BM / TM) * (BN / TN))
    prefetched_tile_macros(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M,
                           int N, int K) {
  constexpr int THREADS_M = BM / TM, THREADS_N = BN / TN, THREADS = THREADS_M * THREADS_N;
  constexpr int STEPS = UNROLL;
  constexpr int A_LOADS = BM * BK / 4 / THREADS, B_LOADS = BK * BN / 4 / THREADS;
  __shared__ __align__(16) float a_tile[2][BK][BM + PAD];
  __shared__ __align__(16) float b_tile[2][BK][BN];

  const int thread = threadIdx.x;
  const int x = thread % THREADS_N, y = thread / THREADS_N;
  A += static_cast<size_t>(blockIdx.y) * BM * K;
  B += static_cast<size_t>(blockIdx.x) * BN;
  float4 a_next[A_LOADS], b_next[B_LOADS];

  auto fetch = [&](int k0) {
#pragma unroll
    for (int i = 0; i < A_LOADS; ++i) {
      const int word = thread + i * THREADS, row = word / (BK / 4), k = word % (BK / 4) * 4;
      a_next[i] = *reinterpret_cast<const float4*>(&A[static_cast<size_t>(row) * K + k0 + k]);
    }
#pragma unroll
    for (int i = 0; i < B_LOADS; ++i) {
      const int word = thread + i * THREADS, k = word / (BN / 4), column = word % (BN / 4) * 4;
      b_next[i] = *reinterpret_cast<const float4*>(&B[static_cast<size_t>(k0 + k) * N + column]);
    }
  };
  auto store = [&](int stage) {
#pragma unroll
    for (int i = 0; i < A_LOADS; ++i) {
      const int word = thread + i * THREADS, row = word / (BK / 4), k = word % (BK / 4) * 4;
      a_tile[stage][k][row] = a_next[i].x;
      a_tile[stage][k + 1][row] = a_next[i].y;
      a_tile[stage][k + 2][row] = a_next[i].z;
      a_tile[stage][k + 3][row] = a_next[i].w;
    }
#pragma unroll
    for (int i = 0; i < B_LOADS; ++i) {
      const int word = thread + i * THREADS, k = word / (BN / 4), column = word % (BN / 4) * 4;
      *reinterpret_cast<float4*>(&b_tile[stage][k][column]) = b_next[i];
    }
  };

  float sum[TM][TN] = {};
  fetch(0);
  store(0);
  __syncthreads();
  for (int k0 = 0, stage = 0; k0 < K; k0 += BK, stage ^= 1) {
    if (k0 + BK < K) fetch(k0 + BK);
#pragma unroll STEPS
    for (int k = 0; k < BK; ++k) {
      float a[TM], b[TN];
#pragma unroll
      for (int i = 0; i < TM; i += 4)
        *reinterpret_cast<float4*>(&a[i]) =
            *reinterpret_cast<const float4*>(&a_tile[stage][k][y * 4 + i * THREADS_M]);
#pragma unroll
      for (int j = 0; j < TN; j += 4)
        *reinterpret_cast<float4*>(&b[j]) =
            *reinterpret_cast<const float4*>(&b_tile[stage][k][x * 4 + j * THREADS_N]);
#pragma unroll
      for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < TN; ++j) sum[i][j] += a[i] * b[j];
      }
    }
    if (k0 + BK < K) store(stage ^ 1);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int row = blockIdx.y * BM + y * 4 + i / 4 * 4 * THREADS_M + i % 4;
#pragma unroll
    for (int j = 0; j < TN; j += 4) {
      const int column = blockIdx.x * BN + x * 4 + j * THREADS_N;
      *reinterpret_cast<float4*>(&C[static_cast<size_t>(row) * N + column]) =
          make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
    }
  }
}
