// Rung 3: the tensor cores, by what CUDA C++ itself offers: nvcuda::wmma.
//
// Adds to the ladder of fp32 (rung 6 there): one instruction of a warp multiplies 16×16 by 16×16. Which lane holds
// which element is the compiler's affair; a program loads fragments, multiplies and stores them. Block, warp and
// fragment tiles are as before, global loads for the next step lie beneath this step's products, and shared memory is
// padded, without which the rows of a fragment would begin in the same few banks.
//
// What holds it back: a fragment is fetched by many narrow loads from shared memory, global memory goes through
// registers, and two barriers a step let nothing overlap. The next rung does each of these otherwise.
//
// On an H200 (cold L2) 61 TFLOP/s at 4096³ in bfloat16, of three configurations: 0.08 of cuBLAS 13.1.
#include <mma.h>

#include "../element.cuh"
#include "../vector.cuh"
#include "tile_order.cuh"

template <typename T, int BM, int BN, int BK, int FM, int FN, int PAD, int GROUP>
__global__ void __launch_bounds__(BM / (16 * FM) * (BN / (16 * FN)) * 32)
    gemm_wmma(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, int M, int N, int K, int lda,
              int ldb, int ldc) {
  namespace wmma = nvcuda::wmma;
  constexpr int VEC = 16 / static_cast<int>(sizeof(T));
  constexpr int WARPS_N = BN / (16 * FN), WARPS = BM / (16 * FM) * WARPS_N, THREADS = WARPS * 32;
  constexpr int RUNS_A = BK / VEC, RUNS_B = BN / VEC;
  constexpr int FETCH_A = BM * RUNS_A / THREADS, FETCH_B = BK * RUNS_B / THREADS;
  constexpr int LD_A = BK + PAD, LD_B = BN + PAD, LD_C = 16 + 4;
  static_assert(BM % (16 * FM) == 0 && BN % (16 * FN) == 0 && BK % 16 == 0, "whole fragments");
  static_assert(BM * RUNS_A % THREADS == 0 && BK * RUNS_B % THREADS == 0, "every thread fetches the same");
  using Run = Vector<T, VEC>;

  __shared__ __align__(32) T a_tile[BM * LD_A];
  __shared__ __align__(32) T b_tile[BK * LD_B];
  __shared__ __align__(32) Accumulator<T> corners[WARPS][16 * LD_C];

  int row0, column0;
  tile_order::locate<GROUP, tile_order::BY_ROWS>(blockIdx.x, (M + BM - 1) / BM, (N + BN - 1) / BN, row0, column0);
  row0 *= BM;
  column0 *= BN;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int warp_row = warp / WARPS_N * FM * 16, warp_column = warp % WARPS_N * FN * 16;
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

  wmma::fragment<wmma::accumulator, 16, 16, 16, Accumulator<T>> sum[FM][FN];
#pragma unroll
  for (int i = 0; i < FM; ++i) {
#pragma unroll
    for (int j = 0; j < FN; ++j) wmma::fill_fragment(sum[i][j], Accumulator<T>{});
  }
  fetch(0);
  for (int k0 = 0; k0 < K; k0 += BK) {
#pragma unroll
    for (int i = 0; i < FETCH_A; ++i) {
      const int place = thread + i * THREADS;
      *reinterpret_cast<Run*>(a_tile + place / RUNS_A * LD_A + place % RUNS_A * VEC) = a_next[i];
    }
#pragma unroll
    for (int i = 0; i < FETCH_B; ++i) {
      const int place = thread + i * THREADS;
      *reinterpret_cast<Run*>(b_tile + place / RUNS_B * LD_B + place % RUNS_B * VEC) = b_next[i];
    }
    __syncthreads();
    if (k0 + BK < K) fetch(k0 + BK);

#pragma unroll
    for (int k = 0; k < BK; k += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> a[FM];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major> b[FN];
#pragma unroll
      for (int i = 0; i < FM; ++i) wmma::load_matrix_sync(a[i], a_tile + (warp_row + i * 16) * LD_A + k, LD_A);
#pragma unroll
      for (int j = 0; j < FN; ++j) wmma::load_matrix_sync(b[j], b_tile + k * LD_B + warp_column + j * 16, LD_B);
#pragma unroll
      for (int i = 0; i < FM; ++i) {
#pragma unroll
        for (int j = 0; j < FN; ++j) wmma::mma_sync(sum[i][j], a[i], b[j], sum[i][j]);
      }
    }
    __syncthreads();
  }

  // A fragment of sums goes through a corner of shared memory of the warp's own: there its elements have places.
  constexpr int WIDTH = 8;
  const bool c_aligned = rows_aligned<Output<T>, WIDTH>(C, ldc);
  const int line = lane / 2, part = lane % 2 * WIDTH;
  Accumulator<T>* const corner = corners[warp];
#pragma unroll
  for (int i = 0; i < FM; ++i) {
#pragma unroll
    for (int j = 0; j < FN; ++j) {
      wmma::store_matrix_sync(corner, sum[i][j], LD_C, wmma::mem_row_major);
      __syncwarp();
      const int row = row0 + warp_row + i * 16 + line, column = column0 + warp_column + j * 16 + part;
      if (row < M) {
        Vector<Output<T>, WIDTH> out;
#pragma unroll
        for (int v = 0; v < WIDTH; ++v) out.value[v] = narrow<T>(corner[line * LD_C + part + v]);
        store_run<Output<T>, WIDTH>(C + static_cast<size_t>(row) * ldc, column, N, c_aligned, out);
      }
      __syncwarp();
    }
  }
}
