// Rung 10: few rows, or few columns. The product of a vector (or a few) and a matrix is a matter of reading it once.
//
// Leaves the ladder's tiles behind. With M ≤ ROWS ≤ 16 each element of B serves M multiply-adds, so no reuse is
// to be had and memory decides. More rows are right too: B is read once for every ROWS of them. A warp reads 32·VEC
// neighbouring elements of a row of B in one instruction, and UNROLL rows at a time, a round ahead of the ones it
// multiplies, so that enough is under way to fill the memory's latency. ACROSS warps of a block stand side by side
// along a row, which makes the runs that a block reads of it long, and DOWN warps take different rows. SPLITS
// blocks take different parts of K, which makes enough blocks for all multiprocessors. A lies in shared memory,
// transposed: the values that go with a row of B are neighbours there, and a broadcast.
//
// Sums are added warp by warp and part by part in a fixed order, the parts by the block that comes last: results
// are the same to the last bit in every launch.
#include "arrival.cuh"
#include "element.cuh"
#include "vector.cuh"

// Adds up the SPLITS parts of tile `group`, in their order, and stores the rows×columns of it that C has there.
template <typename T, int SPLITS, int ROWS, int COLUMNS, int THREADS>
__device__ __forceinline__ void add_parts(Output<T>* C, const Accumulator<T>* partial, int group, int rows, int columns,
                                          int ldc) {
  const Accumulator<T>* const parts = partial + static_cast<size_t>(group) * SPLITS * ROWS * COLUMNS;
  for (int i = threadIdx.x; i < ROWS * COLUMNS; i += THREADS) {
    const int row = i / COLUMNS, column = i % COLUMNS;
    if (row >= rows || column >= columns) continue;
    Accumulator<T> total{};
#pragma unroll 8
    for (int p = 0; p < SPLITS; ++p) total += parts[static_cast<size_t>(p) * ROWS * COLUMNS + i];
    C[static_cast<size_t>(row) * ldc + column] = narrow<T>(total);
  }
}

template <typename T, int ROWS, int VEC, int ACROSS, int DOWN, int UNROLL, int SPLITS>
__global__ void __launch_bounds__(ACROSS* DOWN * 32)
    gemm_gemv(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, Accumulator<T>* partial,
              unsigned* arrived, int M, int N, int K, int lda, int ldb, int ldc) {
  using Sum = Accumulator<T>;
  constexpr int THREADS = ACROSS * DOWN * 32, COLUMNS = ACROSS * 32 * VEC, STEP = DOWN * UNROLL;
  // What is kept of A at a time: 16 KiB, in whole steps.
  constexpr int FITS = 16384 / static_cast<int>(sizeof(Sum)) / ROWS;
  constexpr int DEPTH = FITS / STEP > 0 ? FITS / STEP * STEP : STEP;
  constexpr int PACK = ROWS * sizeof(Sum) <= 16 ? ROWS : 16 / static_cast<int>(sizeof(Sum));
  constexpr int PITCH = ROWS > PACK ? ROWS + PACK : ROWS;  // the transposing stores meet fewer in one bank
  using Pack = Vector<Sum, PACK>;

  __shared__ __align__(16) Sum a_part[DEPTH][PITCH];
  __shared__ __align__(16) Sum gathered[DOWN][COLUMNS];
  __shared__ bool last;

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = blockIdx.x / SPLITS, part = blockIdx.x % SPLITS, groups_n = (N + COLUMNS - 1) / COLUMNS;
  const int row0 = group / groups_n * ROWS, rows = min(ROWS, M - row0), column0 = group % groups_n * COLUMNS;
  A += static_cast<size_t>(row0) * lda;
  C += static_cast<size_t>(row0) * ldc;
  const int own_column = (warp % ACROSS * 32 + lane) * VEC;
  const int first_row = warp / ACROSS * UNROLL;
  const int share = (K + SPLITS - 1) / SPLITS;
  const int begin = min(part * share, K), end = min(begin + share, K);
  const bool aligned = rows_aligned<T, VEC>(B, ldb);

  Vector<T, VEC> ahead[UNROLL];
  auto fetch = [&](int first) {
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const int k = first + u;
      ahead[u] = load_run<T, VEC>(B + static_cast<size_t>(min(k, K - 1)) * ldb, column0 + own_column, k < end ? N : 0,
                                  aligned);
    }
  };
  fetch(begin + first_row);

  Sum sum[ROWS][VEC] = {};
  for (int k0 = begin; k0 < end; k0 += DEPTH) {
    const int steps = min(DEPTH, end - k0);
    // Whole steps are multiplied: zeros where K ends within one.
    const int padded = (steps + STEP - 1) / STEP * STEP;
    for (int row = 0; row < ROWS; ++row) {
      for (int k = threadIdx.x; k < padded; k += THREADS) {
        a_part[k][row] = row < rows && k < steps ? widen(A[static_cast<size_t>(row) * lda + k0 + k]) : Sum{};
      }
    }
    __syncthreads();
    for (int step = first_row; step < steps; step += STEP) {
      Vector<T, VEC> b[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) b[u] = ahead[u];
      fetch(k0 + step + STEP);
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
#pragma unroll
        for (int pack = 0; pack < ROWS / PACK; ++pack) {
          const Pack a = *reinterpret_cast<const Pack*>(&a_part[step + u][pack * PACK]);
#pragma unroll
          for (int r = 0; r < PACK; ++r) {
#pragma unroll
            for (int v = 0; v < VEC; ++v) sum[pack * PACK + r][v] += a.value[r] * widen(b[u].value[v]);
          }
        }
      }
    }
    if (k0 + DEPTH < end) __syncthreads();
  }

  Sum* const mine = partial + (static_cast<size_t>(group) * SPLITS + part) * ROWS * COLUMNS;
  auto hand_over = [&](int row, int column, Sum total) {
    if (SPLITS > 1) {
      mine[row * COLUMNS + column] = total;
    } else if (column0 + column < N) {
      C[static_cast<size_t>(row) * ldc + column0 + column] = narrow<T>(total);
    }
  };
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    if (row >= rows) break;
    if (DOWN == 1) {
#pragma unroll
      for (int v = 0; v < VEC; ++v) hand_over(row, own_column + v, sum[row][v]);
      continue;
    }
#pragma unroll
    for (int v = 0; v < VEC; ++v) gathered[warp / ACROSS][own_column + v] = sum[row][v];
    __syncthreads();
    for (int column = threadIdx.x; column < COLUMNS; column += THREADS) {
      Sum total{};
#pragma unroll
      for (int w = 0; w < DOWN; ++w) total += gathered[w][column];
      hand_over(row, column, total);
    }
    __syncthreads();
  }
  if (SPLITS == 1) return;

  if (!arrives_last(&arrived[group], SPLITS, last)) return;
  add_parts<T, SPLITS, ROWS, COLUMNS, THREADS>(C + column0, partial, group, rows, N - column0, ldc);
}

// Few columns instead: each element of A, a row of which runs along k, serves N multiply-adds.
//
// A warp takes ROWS rows and goes along k, each lane VEC neighbouring elements at a time, and adds its lanes' sums
// at the end. The block's part of B lies in shared memory, column by column, so that a lane finds the VEC
// elements that go with its own next to each other.
template <typename T, int COLUMNS, int ROWS, int VEC, int WARPS, int SPLITS>
__global__ void __launch_bounds__(WARPS * 32)
    gemm_gemv_columns(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C,
                      Accumulator<T>* partial, unsigned* arrived, int M, int N, int K, int lda, int ldb, int ldc) {
  using Sum = Accumulator<T>;
  constexpr int THREADS = WARPS * 32, STRIDE = 32 * VEC, HEIGHT = WARPS * ROWS;
  constexpr int DEPTH = STRIDE * (512 / STRIDE > 0 ? 512 / STRIDE : 1);

  __shared__ __align__(16) T b_part[COLUMNS][DEPTH];
  __shared__ bool last;

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = blockIdx.x / SPLITS, part = blockIdx.x % SPLITS;
  const int groups_m = (M + HEIGHT - 1) / HEIGHT, first_row = group % groups_m * HEIGHT;
  const int row0 = first_row + warp * ROWS, column0 = group / groups_m * COLUMNS, columns = min(COLUMNS, N - column0);
  B += column0;
  C += column0;
  // Parts begin where vectors may.
  const int share = ((K + SPLITS - 1) / SPLITS + VEC - 1) / VEC * VEC;
  const int begin = min(part * share, K), end = min(begin + share, K);
  const bool aligned = rows_aligned<T, VEC>(A, lda);

  Sum sum[ROWS][COLUMNS] = {};
  for (int k0 = begin; k0 < end; k0 += DEPTH) {
    for (int i = threadIdx.x; i < DEPTH * COLUMNS; i += THREADS) {
      const int k = i / COLUMNS, column = i % COLUMNS;
      const bool inside = k0 + k < end && column < columns;
      b_part[column][k] = inside ? B[static_cast<size_t>(k0 + k) * ldb + column] : T{};
    }
    __syncthreads();
#pragma unroll 2
    for (int k = lane * VEC; k < DEPTH; k += STRIDE) {
      Vector<T, VEC> a[ROWS];
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        a[r] = load_run<T, VEC>(A + static_cast<size_t>(min(row0 + r, M - 1)) * lda, k0 + k, end, aligned);
      }
#pragma unroll
      for (int column = 0; column < COLUMNS; ++column) {
        const Vector<T, VEC> b = *reinterpret_cast<const Vector<T, VEC>*>(&b_part[column][k]);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
          for (int v = 0; v < VEC; ++v) sum[r][column] += widen(a[r].value[v]) * widen(b.value[v]);
        }
      }
    }
    __syncthreads();
  }

  Sum* const mine = partial + (static_cast<size_t>(group) * SPLITS + part) * HEIGHT * COLUMNS;
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
#pragma unroll
    for (int column = 0; column < COLUMNS; ++column) {
      Sum total = sum[r][column];
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) total += __shfl_xor_sync(0xffffffffu, total, offset);
      if (lane == 0) {
        if (SPLITS > 1) {
          mine[(warp * ROWS + r) * COLUMNS + column] = total;
        } else if (row0 + r < M && column < columns) {
          C[static_cast<size_t>(row0 + r) * ldc + column] = narrow<T>(total);
        }
      }
    }
  }
  if (SPLITS == 1) return;

  if (!arrives_last(&arrived[group], SPLITS, last)) return;
  add_parts<T, SPLITS, HEIGHT, COLUMNS, THREADS>(C + static_cast<size_t>(first_row) * ldc, partial, group,
                                                 M - first_row, columns, ldc);
}
