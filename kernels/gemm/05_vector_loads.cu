// Rung 5: every load and store moves VEC elements.
//
// Adds to rung 4: one instruction moves up to 16 bytes, from global memory, to and from shared memory. The tile
// of A is stored transposed, so that the rows of a thread are neighbours there as its columns are in the tile of
// B; a step along K then takes (TM + TN) / VEC shared loads for TM·TN multiply-adds. PAD elements at the end of
// each row of the transposed tile move the elements of a column to different banks, which the transposing
// stores would otherwise meet in one.
//
// Rows that do not begin at a multiple of VEC elements (lda, ldb or ldc is odd, say) are moved one element at a
// time. That is one test for the whole launch, so one build is right for every matrix, and fast where it can be.
#include "element.cuh"
#include "vector.cuh"

template <typename T, int BM, int BN, int BK, int TM, int TN, int VEC, int PAD>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
    gemm_vector_loads(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, int M, int N, int K,
                      int lda, int ldb, int ldc) {
  constexpr int THREADS_M = BM / TM, THREADS_N = BN / TN, THREADS = THREADS_M * THREADS_N;
  constexpr int RUNS_A = BK / VEC, RUNS_B = BN / VEC;
  static_assert(BM % TM == 0 && BN % TN == 0, "a thread tile divides the block tile");
  static_assert(BK % VEC == 0 && TM % VEC == 0 && TN % VEC == 0 && PAD % VEC == 0, "whole vectors");
  using Run = Vector<T, VEC>;

  __shared__ __align__(16) T a_tile[BK][BM + PAD];
  __shared__ __align__(16) T b_tile[BK][BN];

  const int thread = threadIdx.x;
  const int x = thread % THREADS_N, y = thread / THREADS_N;
  const int row0 = blockIdx.y * BM, column0 = blockIdx.x * BN;
  const bool a_aligned = rows_aligned<T, VEC>(A, lda), b_aligned = rows_aligned<T, VEC>(B, ldb);

  Accumulator<T> sum[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
#pragma unroll
    for (int i = thread; i < BM * RUNS_A; i += THREADS) {
      const int row = i / RUNS_A, k = i % RUNS_A * VEC;
      const int end = row0 + row < M ? K : 0;
      const Run run = load_run<T, VEC>(A + static_cast<size_t>(min(row0 + row, M - 1)) * lda, k0 + k, end, a_aligned);
#pragma unroll
      for (int v = 0; v < VEC; ++v) a_tile[k + v][row] = run.value[v];
    }
#pragma unroll
    for (int i = thread; i < BK * RUNS_B; i += THREADS) {
      const int k = i / RUNS_B, column = i % RUNS_B * VEC;
      const int end = k0 + k < K ? N : 0;
      *reinterpret_cast<Run*>(&b_tile[k][column]) = load_run<T, VEC>(
          B + static_cast<size_t>(min(k0 + k, K - 1)) * ldb, column0 + column, end, b_aligned);
    }
    __syncthreads();

#pragma unroll
    for (int k = 0; k < BK; ++k) {
      Run a[TM / VEC], b[TN / VEC];
#pragma unroll
      for (int i = 0; i < TM / VEC; ++i) {
        a[i] = *reinterpret_cast<const Run*>(&a_tile[k][(y + i * THREADS_M) * VEC]);
      }
#pragma unroll
      for (int j = 0; j < TN / VEC; ++j) {
        b[j] = *reinterpret_cast<const Run*>(&b_tile[k][(x + j * THREADS_N) * VEC]);
      }
#pragma unroll
      for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < TN; ++j) {
          sum[i][j] += widen(a[i / VEC].value[i % VEC]) * widen(b[j / VEC].value[j % VEC]);
        }
      }
    }
    __syncthreads();
  }

  const bool c_aligned = rows_aligned<Output<T>, VEC>(C, ldc);
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int row = row0 + (y + i / VEC * THREADS_M) * VEC + i % VEC;
    if (row >= M) continue;
#pragma unroll
    for (int j = 0; j < TN / VEC; ++j) {
      Vector<Output<T>, VEC> run;
#pragma unroll
      for (int v = 0; v < VEC; ++v) run.value[v] = narrow<T>(sum[i][j * VEC + v]);
      store_run<Output<T>, VEC>(C + static_cast<size_t>(row) * ldc, column0 + (x + j * THREADS_N) * VEC, N, c_aligned,
                                run);
    }
  }
}
