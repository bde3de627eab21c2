// How the sums of a warpgroup's products get from registers to C, rounded to C's type of 16 bits.
#pragma once

#include "../../common/wgmma.cuh"

namespace store {

constexpr int DIRECT = 0;   // each thread its pairs of elements: any ldc, 16 bytes of a row at a time
constexpr int THROUGH = 1;  // through shared memory: any ldc, 128 bytes of a row at a time
constexpr int TMA = 2;      // through shared memory by TMA, behind the arithmetic: ldc a multiple of 8
constexpr int IN_RING = 3;  // the same of a block's last tile, each slab through a place of its own where the ring was

constexpr int ROWS = 16, COLUMNS = 64;      // of a slab, what a warp stores at once
constexpr int SLAB_BYTES = ROWS * COLUMNS * 2;

#ifdef __CUDA_BF16_TYPES_EXIST__
__device__ __forceinline__ unsigned pack(float low, float high, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
}
#endif
#ifdef __CUDA_FP16_TYPES_EXIST__
__device__ __forceinline__ unsigned pack(float low, float high, __half) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
}
#endif

// All sums of a thread, rounded, in half the registers: pair i are sums 2i and 2i + 1, neighbours in a row.
template <typename T, int Pairs>
__device__ __forceinline__ void round_all(unsigned (&pairs)[Pairs], const float (&sums)[2 * Pairs]) {
#pragma unroll
  for (int i = 0; i < Pairs; ++i) pairs[i] = pack(sums[2 * i], sums[2 * i + 1], T());
}

// Stores two neighbouring elements, of which `left` belong to the row; at once where `whole` says they are aligned.
template <typename T>
__device__ __forceinline__ void store_pair(T* to, unsigned pair, int left, bool whole) {
  unsigned short* halves = reinterpret_cast<unsigned short*>(to);
  if (whole && left >= 2) {
    *reinterpret_cast<unsigned*>(to) = pair;
  } else {
    if (left > 0) halves[0] = static_cast<unsigned short>(pair);
    if (left > 1) halves[1] = static_cast<unsigned short>(pair >> 16);
  }
}

// Pairs from … to - 1 of a warpgroup's 64 rows, straight from the registers. `row` and `column` are those of its first
// element.
template <typename T, int Pairs>
__device__ __forceinline__ void direct(const unsigned (&pairs)[Pairs], T* C, int ldc, int row, int column, int M,
                                       int N, int from = 0, int to = Pairs) {
  const int thread = threadIdx.x % 128;
  const bool whole = ldc % 2 == 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + wgmma::row_of(2 * half, thread);
    if (r >= M) continue;
    T* line = C + static_cast<size_t>(r) * ldc;
#pragma unroll
    for (int i = from + half; i < to; i += 2) {
      const int c = column + wgmma::column_of(2 * i, thread);
      store_pair(line + c, pairs[i], N - c, whole);
    }
  }
}

// The warp's 16 rows of 64 columns (or what is left of them), from column 64·s on, into a slab of shared memory,
// swizzled as TMA reads it: unit u of 16 bytes of row r lies at u ^ (r % 8), so the eight rows of an 8×8 matrix take
// all banks.
template <int Pairs>
__device__ __forceinline__ void fill_slab(const unsigned (&pairs)[Pairs], int s, unsigned slab) {
  const int lane = threadIdx.x % 32;
  const unsigned row = slab + (lane % 16) * 128;
#pragma unroll
  for (int unit = 0; unit < 8; unit += 2) {
    const int i = 16 * s + 2 * unit;
    if (i >= Pairs) break;
    hopper::stmatrix_x4(row + ((unit + lane / 16) ^ lane % 8) * 16, pairs[i], pairs[i + 1], pairs[i + 2],
                        pairs[i + 3]);
  }
}

// A slab to C at (row, column), rows of it after each other: 4 bytes a lane, pairs that begin where C's row is
// aligned, which is at the second element where ldc and the row are odd. Eight rows are read before the first is
// stored.
template <typename T>
__device__ __forceinline__ void empty_slab(unsigned slab, T* C, int ldc, int row, int column, int M, int N) {
  const int lane = threadIdx.x % 32, left = min(N - column, COLUMNS);
#pragma unroll 1
  for (int half = 0; half < ROWS; half += 8) {
    unsigned pairs[8];
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      asm volatile("ld.shared.u32 %0, [%1];"
                   : "=r"(pairs[r])
                   : "r"(slab + (half + r) * 128 + ((lane / 4) ^ r) * 16 + lane % 4 * 4)
                   : "memory");
    }
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const unsigned next = __shfl_down_sync(0xffffffffu, pairs[r], 1);
      if (row + half + r >= M) continue;
      T* line = C + static_cast<size_t>(row + half + r) * ldc + column;
      const int odd = static_cast<int>(reinterpret_cast<size_t>(line) / 2 % 2), first = 2 * lane + odd;
      if (first < left) store_pair(line + first, __funnelshift_r(pairs[r], next, odd * 16), left - first, true);
      if (odd && lane == 0) store_pair(line, pairs[r], min(left, 1), false);
    }
  }
}

// The first 32 columns of a slab to C, whose rows begin at multiples of 16 bytes: 16 bytes a lane.
template <typename T>
__device__ __forceinline__ void empty_half_slab(unsigned slab, T* C, int ldc, int row, int column, int M, int N) {
  const int unit = threadIdx.x % 4, left = N - column - unit * 8;
#pragma unroll
  for (int half = 0; half < ROWS; half += 8) {
    const int r = half + threadIdx.x % 32 / 4;
    uint4 eight;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(eight.x), "=r"(eight.y), "=r"(eight.z), "=r"(eight.w)
                 : "r"(slab + r * 128 + (unit ^ r % 8) * 16)
                 : "memory");
    T* const to = C + static_cast<size_t>(row + r) * ldc + column + unit * 8;
    if (row + r >= M || left <= 0) continue;
    if (left >= 8) {
      *reinterpret_cast<uint4*>(to) = eight;
    } else {
      store_pair(to, eight.x, left, true);
      store_pair(to + 2, eight.y, left - 2, true);
      store_pair(to + 4, eight.z, left - 4, true);
      store_pair(to + 6, eight.w, left - 6, true);
    }
  }
}

// Columns 64·s to 64·s + 63 of a warpgroup's 64 rows, or the 32 that are left of them; `slab` is this warp's, and
// nothing reads it any more. `row` and `column` are the warpgroup's first element. By TMA, the copy is still under way
// on return.
template <typename T, int STORE, int Pairs>
__device__ __forceinline__ void one_slab(const unsigned (&pairs)[Pairs], int s, unsigned slab,
                                         const hopper::TensorMap* map, T* C, int ldc, int row, int column, int M,
                                         int N) {
  const int lane = threadIdx.x % 32, first = row + threadIdx.x % 128 / 32 * ROWS;
  if constexpr (STORE == DIRECT) {
    direct(pairs, C, ldc, row, column, M, N, 16 * s, min(16 * s + 16, Pairs));
  } else if (16 * s + 16 > Pairs) {
    // A box of the map would write to the next tile's columns.
    __syncwarp();
    fill_slab(pairs, s, slab);
    __syncwarp();
    if constexpr (STORE == TMA) {
      empty_half_slab(slab, C, ldc, first, column + s * COLUMNS, M, N);
      if (lane == 0) hopper::tma_store_commit();  // an empty group: who waits counts one a slab
    } else {
      empty_slab(slab, C, ldc, first, column + s * COLUMNS, M, min(N, column + 4 * Pairs));
    }
  } else {
    __syncwarp();
    fill_slab(pairs, s, slab);
    if (STORE == TMA) hopper::fence_async_proxy();
    __syncwarp();
    if constexpr (STORE == TMA) {
      if (lane == 0) {
        hopper::tma_store(map, slab, column + s * COLUMNS, first);
        hopper::tma_store_commit();
      }
    } else {
      empty_slab(slab, C, ldc, first, column + s * COLUMNS, M, N);
    }
  }
}

// All of them, through slabs of the warps; `slabs` are this warp's, BUFFERS of them, `row` and
// `column` the warpgroup's first element.
template <typename T, int STORE, int BUFFERS, int Pairs>
__device__ __forceinline__ void through(const unsigned (&pairs)[Pairs], unsigned slabs, const hopper::TensorMap* map,
                                        T* C, int ldc, int row, int column, int M, int N) {
#pragma unroll
  for (int s = 0; s < Pairs * 4 / COLUMNS; ++s) {
    if (STORE == TMA && threadIdx.x % 32 == 0) {
      // Where slabs do not come out even, a call begins with the one that the last call ended with.
      s == 0 && Pairs * 4 / COLUMNS % BUFFERS != 0 ? hopper::tma_store_wait_read<0>()
                                                   : hopper::tma_store_wait_read<BUFFERS - 1>();
    }
    one_slab<T, STORE>(pairs, s, slabs + s % BUFFERS * SLAB_BYTES, map, C, ldc, row, column, M, N);
  }
}

// Both for sums that are not rounded yet.
template <typename T, int Sums>
__device__ __forceinline__ void direct(const float (&sums)[Sums], T* C, int ldc, int row, int column, int M, int N) {
  unsigned pairs[Sums / 2];
  round_all<T>(pairs, sums);
  direct(pairs, C, ldc, row, column, M, N);
}

template <typename T, int STORE, int BUFFERS, int Sums>
__device__ __forceinline__ void through(const float (&sums)[Sums], unsigned slabs, const hopper::TensorMap* map, T* C,
                                        int ldc, int row, int column, int M, int N) {
  unsigned pairs[Sums / 2];
  round_all<T>(pairs, sums);
  through<T, STORE, BUFFERS>(pairs, slabs, map, C, ldc, row, column, M, N);
}

}  // namespace store
