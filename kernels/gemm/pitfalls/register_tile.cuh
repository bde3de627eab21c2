// Rung 4's kernel in parts, for pitfalls that spoil one of them: BM×BN of C a block in steps of BK along K,
// TM×TN of it a thread.
#pragma once
#include "../element.cuh"

template <int BM, int BN, int BK, int TM, int TN>
struct Tile {
  static constexpr int THREADS_M = BM / TM, THREADS_N = BN / TN, THREADS = THREADS_M * THREADS_N;
  static_assert(BM % TM == 0 && BN % TN == 0, "a thread tile divides the block tile");
};

// Stage BM×BK of A from (row0, k0), by `count` threads of which this is number `index`; zeros beyond its edges.
template <int BM, int BK, typename T>
__device__ __forceinline__ void stage_a(T (&tile)[BM][BK], const T* A, int row0, int k0, int M, int K, int lda,
                                        int index, int count) {
  for (int i = index; i < BM * BK; i += count) {
    const int row = row0 + i / BK, k = k0 + i % BK;
    tile[i / BK][i % BK] = row < M && k < K ? A[static_cast<size_t>(row) * lda + k] : T{};
  }
}

template <int BK, int BN, typename T>
__device__ __forceinline__ void stage_b(T (&tile)[BK][BN], const T* B, int k0, int column0, int K, int N, int ldb,
                                        int index, int count) {
  for (int i = index; i < BK * BN; i += count) {
    const int k = k0 + i / BN, column = column0 + i % BN;
    tile[i / BN][i % BN] = k < K && column < N ? B[static_cast<size_t>(k) * ldb + column] : T{};
  }
}

// One step along K: the products of column k of a_tile and row k of b_tile.
template <int TM, int TN, int BM, int BN, int BK, typename T>
__device__ __forceinline__ void multiply(Accumulator<T> (&sum)[TM][TN], const T (&a_tile)[BM][BK],
                                         const T (&b_tile)[BK][BN], int x, int y, int k) {
  Accumulator<T> a[TM], b[TN];
#pragma unroll
  for (int i = 0; i < TM; ++i) a[i] = widen(a_tile[y + i * (BM / TM)][k]);
#pragma unroll
  for (int j = 0; j < TN; ++j) b[j] = widen(b_tile[k][x + j * (BN / TN)]);
#pragma unroll
  for (int i = 0; i < TM; ++i) {
#pragma unroll
    for (int j = 0; j < TN; ++j) sum[i][j] += a[i] * b[j];
  }
}

template <int BM, int BN, typename T, int TM, int TN>
__device__ __forceinline__ void store(Output<T>* C, const Accumulator<T> (&sum)[TM][TN], int row0, int column0, int x,
                                      int y, int M, int N, int ldc) {
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int row = row0 + y + i * (BM / TM);
#pragma unroll
    for (int j = 0; j < TN; ++j) {
      const int column = column0 + x + j * (BN / TN);
      if (row < M && column < N) C[static_cast<size_t>(row) * ldc + column] = narrow<T>(sum[i][j]);
    }
  }
}
