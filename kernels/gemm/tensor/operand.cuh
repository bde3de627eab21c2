// A tile of A or B of 16-bit elements in shared memory, as TMA's 128-byte swizzle leaves it and wgmma reads it, for
// either order of the operand in global memory.
#pragma once

#include "../../common/wgmma.cuh"

// What of a tile one copy brings, and where. EXTENT elements along M (of A) or N (of B), BK along K. Of a tile whose
// rows run along K (`Major::K`), 64 of K are a slice of EXTENT rows; of one whose rows run along M or N, 64 of those
// are a slice of BK rows. Either way a row of a slice is 128 bytes. SHARES blocks of a cluster fetch a part each: of
// every slice some rows, or some of the slices.
template <wgmma::Major MAJOR, int EXTENT, int BK, int SHARES = 1>
struct OperandTile {
  static constexpr bool ALONG_K = MAJOR == wgmma::Major::K;
  // Of the last slice along M or N, half may be beyond the tile: it is fetched, and not read.
  static constexpr int SLICES = ((ALONG_K ? BK : EXTENT) + 63) / 64, ROWS = ALONG_K ? EXTENT : BK;
  static constexpr unsigned SLICE_BYTES = ROWS * 128, BYTES = SLICES * SLICE_BYTES;
  static_assert(EXTENT % 32 == 0 && BK % 64 == 0, "slices cover the tile");
  static_assert(ALONG_K ? ROWS % (8 * SHARES) == 0 : SLICES % SHARES == 0, "blocks of a cluster fetch equal shares");

  // Calls copy(address, x, y) for each box of this block's share of the tile that begins at element `across` along M
  // or N and `along` along K. `share` counts the blocks that share it.
  template <typename Copy>
  __device__ static __forceinline__ void fetch(unsigned tile, int across, int along, int share, Copy copy) {
    if constexpr (ALONG_K) {
      const int first = share * (ROWS / SHARES);
#pragma unroll
      for (int slice = 0; slice < SLICES; ++slice) {
        copy(tile + slice * SLICE_BYTES + first * 128, along + slice * 64, across + first);
      }
    } else {
#pragma unroll
      for (int i = 0; i < SLICES / SHARES; ++i) {
        const int slice = i * SHARES + share;
        copy(tile + slice * SLICE_BYTES, across + slice * 64, along);
      }
    }
  }

  // The descriptor of what lies from element `first` along M or N on, a multiple of 64, at the tile's first K.
  __device__ static __forceinline__ unsigned long long descriptor(unsigned tile, int first = 0) {
    return ALONG_K ? wgmma::descriptor_k(tile + first * 128)
                   : wgmma::descriptor_mn(tile + first / 64 * SLICE_BYTES, BK);
  }

  // 64 rows of 128 bytes that nothing but products of the 64 elements from `first` on ever reads: those of the n-th 64
  // of K, of a ring of such tiles.
  __device__ static __forceinline__ unsigned own_box(unsigned tiles, int first, int n) {
    return ALONG_K ? tiles + n * SLICE_BYTES + first * 128
                   : tiles + n / (BK / 64) * BYTES + first / 64 * SLICE_BYTES + n % (BK / 64) * (64 * 128);
  }

  // What to add to it for 64 more elements along M or N, and for the k-th product of depth 16.
  static constexpr int NEXT_64 = (ALONG_K ? 64 * 128 : SLICE_BYTES) / 16;
  __device__ static constexpr int step(int k) {
    return ALONG_K ? k / 4 * (SLICE_BYTES / 16) + k % 4 * wgmma::STEP_K : k * wgmma::STEP_MN;
  }
};
