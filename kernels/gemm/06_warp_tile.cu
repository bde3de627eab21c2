// Rung 6: the block tile is divided among warps, the warp tile among lanes.
//
// Adds to rung 5: which threads share what. There, a warp was 32 threads along a row of the block tile: it read
// one value of A and a long run of B at each step. Here a warp computes WM×WN of C, as nearly square as it likes,
// which takes WM + WN distinct elements of shared memory for WM·WN multiply-adds, the fewest there can be. All
// lanes that need the same element are in the warp that reads it, so the rest are broadcasts; and a warp is what
// the scheduler issues, so the tiles of different warps may be at different places of the loop.
//
// A warp goes over its tile in ITER_M×ITER_N parts, each of LANES_M×LANES_N thread tiles of TM×TN. All parts'
// fragments are in registers at a time: ITER_M·TM + ITER_N·TN of them for ITER_M·TM·ITER_N·TN multiply-adds.
//
// The next tiles' elements are fetched into registers before this step's products and stored after them, so
// that their way through global memory lies beneath the arithmetic.
#include "element.cuh"
#include "vector.cuh"

template <typename T, int BM, int BN, int BK, int WM, int WN, int ITER_N, int TM, int TN>
__global__ void __launch_bounds__((BM / WM) * (BN / WN) * 32)
    gemm_warp_tile(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, int M, int N, int K,
                   int lda, int ldb, int ldc) {
  constexpr int VEC = sizeof(T) <= 4 ? 4 : 16 / static_cast<int>(sizeof(T));
  constexpr int WARPS_N = BN / WN, THREADS = (BM / WM) * WARPS_N * 32;
  constexpr int LANES_N = WN / (ITER_N * TN), LANES_M = 32 / LANES_N, ITER_M = WM / (LANES_M * TM);
  constexpr int RUNS_A = BK / VEC, RUNS_B = BN / VEC;
  constexpr int FETCH_A = BM * RUNS_A / THREADS, FETCH_B = BK * RUNS_B / THREADS;
  static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles divide the block tile");
  static_assert(LANES_N * ITER_N * TN == WN && LANES_M * LANES_N == 32 && ITER_M * LANES_M * TM == WM,
                "thread tiles of 32 lanes divide the warp tile");
  static_assert(TM % VEC == 0 && TN % VEC == 0 && BK % VEC == 0, "whole vectors");
  static_assert(BM * RUNS_A % THREADS == 0 && BK * RUNS_B % THREADS == 0, "every thread fetches the same");
  using Run = Vector<T, VEC>;

  __shared__ __align__(16) T a_tile[BK][BM + VEC];
  __shared__ __align__(16) T b_tile[BK][BN];

  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int row0 = blockIdx.y * BM, column0 = blockIdx.x * BN;
  const int warp_row = warp / WARPS_N * WM, warp_column = warp % WARPS_N * WN;
  const int lane_row = lane / LANES_N * TM, lane_column = lane % LANES_N * TN;
  const bool a_aligned = rows_aligned<T, VEC>(A, lda), b_aligned = rows_aligned<T, VEC>(B, ldb);

  Run a_next[FETCH_A], b_next[FETCH_B];
  auto fetch = [&](int k0) {
#pragma unroll
    for (int i = 0; i < FETCH_A; ++i) {
      const int row = row0 + (thread + i * THREADS) / RUNS_A, k = k0 + (thread + i * THREADS) % RUNS_A * VEC;
      a_next[i] = load_run<T, VEC>(A + static_cast<size_t>(min(row, M - 1)) * lda, k, row < M ? K : 0, a_aligned);
    }
#pragma unroll
    for (int i = 0; i < FETCH_B; ++i) {
      const int k = k0 + (thread + i * THREADS) / RUNS_B, column = column0 + (thread + i * THREADS) % RUNS_B * VEC;
      b_next[i] = load_run<T, VEC>(B + static_cast<size_t>(min(k, K - 1)) * ldb, column, k < K ? N : 0, b_aligned);
    }
  };

  Accumulator<T> sum[ITER_M * TM][ITER_N * TN] = {};
  fetch(0);
  for (int k0 = 0; k0 < K; k0 += BK) {
#pragma unroll
    for (int i = 0; i < FETCH_A; ++i) {
      const int row = (thread + i * THREADS) / RUNS_A, k = (thread + i * THREADS) % RUNS_A * VEC;
#pragma unroll
      for (int v = 0; v < VEC; ++v) a_tile[k + v][row] = a_next[i].value[v];
    }
#pragma unroll
    for (int i = 0; i < FETCH_B; ++i) {
      const int k = (thread + i * THREADS) / RUNS_B, column = (thread + i * THREADS) % RUNS_B * VEC;
      *reinterpret_cast<Run*>(&b_tile[k][column]) = b_next[i];
    }
    __syncthreads();
    if (k0 + BK < K) fetch(k0 + BK);

#pragma unroll
    for (int k = 0; k < BK; ++k) {
      Run a[ITER_M][TM / VEC], b[ITER_N][TN / VEC];
#pragma unroll
      for (int m = 0; m < ITER_M; ++m) {
#pragma unroll
        for (int i = 0; i < TM / VEC; ++i) {
          a[m][i] = *reinterpret_cast<const Run*>(&a_tile[k][warp_row + m * LANES_M * TM + lane_row + i * VEC]);
        }
      }
#pragma unroll
      for (int n = 0; n < ITER_N; ++n) {
#pragma unroll
        for (int j = 0; j < TN / VEC; ++j) {
          b[n][j] = *reinterpret_cast<const Run*>(&b_tile[k][warp_column + n * LANES_N * TN + lane_column + j * VEC]);
        }
      }
#pragma unroll
      for (int i = 0; i < ITER_M * TM; ++i) {
        const Accumulator<T> left = widen(a[i / TM][i % TM / VEC].value[i % VEC]);
#pragma unroll
        for (int j = 0; j < ITER_N * TN; ++j) sum[i][j] += left * widen(b[j / TN][j % TN / VEC].value[j % VEC]);
      }
    }
    __syncthreads();
  }

  const bool c_aligned = rows_aligned<Output<T>, VEC>(C, ldc);
#pragma unroll
  for (int i = 0; i < ITER_M * TM; ++i) {
    const int row = row0 + warp_row + i / TM * LANES_M * TM + lane_row + i % TM;
    if (row >= M) continue;
#pragma unroll
    for (int j = 0; j < ITER_N * TN; j += VEC) {
      Vector<Output<T>, VEC> run;
#pragma unroll
      for (int v = 0; v < VEC; ++v) run.value[v] = narrow<T>(sum[i][j + v]);
      store_run<Output<T>, VEC>(C + static_cast<size_t>(row) * ldc,
                                column0 + warp_column + j / TN * LANES_N * TN + lane_column + j % TN, N, c_aligned,
                                run);
    }
  }
}
