// What rung 15 is made of: classes whose factors wgmma reads along K only, a copy that lays a factor out that way,
// and stores of sums of 32 bits.
//
// A k-block is 128 bytes of K for every class: 32 elements of tf32, 128 of int8 or e4m3, four products of wgmma.
#pragma once

#include "../../common/hopper.cuh"
#include "../../common/wgmma.cuh"

namespace k_major {

constexpr int ROW_BYTES = 128;  // of a k-block, and of TMA's swizzle
constexpr int STEPS = 4;        // products of a k-block

// What a class is to wgmma, and what its results are stored in.
template <typename T>
struct Factor;
template <>
struct Factor<float> {
  using Kind = wgmma::Tf32;
  using Output = float;
};
template <>
struct Factor<signed char> {
  using Kind = wgmma::Int8;
  using Output = int;
};
#ifdef __CUDA_FP8_TYPES_EXIST__
template <>
struct Factor<__nv_fp8_e4m3> {
  using Kind = wgmma::E4m3;
  using Output = __nv_bfloat16;
};
#endif

template <typename T>
constexpr int DEPTH = ROW_BYTES / static_cast<int>(sizeof(T));  // elements of K in a k-block

// --- A factor whose rows are K, laid out along K ---------------------------------------------------------------

// A part of the factor that one warp transposes at a time: 32 rows of K and, a word a lane, 32 columns of 32 bits or
// 128 of 8 bits. Loads of the warp are runs of 128 bytes. Words along K go through shared memory, so that stores fill
// sectors: a row of the copy gets WORDS of them, of which four are a lane's.
template <int ELEMENT_BYTES>
struct Part {
  static constexpr int DEPTH = 32, PACKED = 4 / ELEMENT_BYTES, COLUMNS = 32 * PACKED, WORDS = 32 / PACKED;
  static constexpr int PITCH = WORDS + 1;  // in shared memory
  static constexpr unsigned BYTES = COLUMNS * PITCH * 4;
  unsigned word[DEPTH];

  // Elements outside the matrix, of `rows` by `columns`, are zero.
  __device__ __forceinline__ void load(const unsigned char* from, int row, int column, int rows, int columns,
                                       int pitch) {
    const int mine = column + threadIdx.x % 32 * PACKED;
    const bool aligned = PACKED == 1 || (pitch % 4 == 0 && reinterpret_cast<size_t>(from) % 4 == 0);
    if (aligned && row + DEPTH <= rows && column + COLUMNS <= columns) {
      const unsigned char* at = from + (static_cast<size_t>(row) * pitch + mine) * ELEMENT_BYTES;
#pragma unroll
      for (int k = 0; k < DEPTH; ++k, at += static_cast<size_t>(pitch) * ELEMENT_BYTES) {
        word[k] = __ldg(reinterpret_cast<const unsigned*>(at));
      }
      return;
    }
#pragma unroll
    for (int k = 0; k < DEPTH; ++k) {
      const unsigned char* at = from + (static_cast<size_t>(row + k) * pitch + mine) * ELEMENT_BYTES;
      word[k] = 0;
      if (row + k >= rows) continue;
      if (aligned && mine + PACKED <= columns) {
        word[k] = __ldg(reinterpret_cast<const unsigned*>(at));
      } else {
        for (int c = 0; c < PACKED && mine + c < columns; ++c) word[k] |= static_cast<unsigned>(at[c]) << 8 * c;
      }
    }
  }

  // Word w of column n lies at n·PITCH + w, its last two bits turned by the lane's eight: lanes then take all banks.
  __device__ __forceinline__ void put(unsigned* shared) const {
    const int lane = threadIdx.x % 32;
    if constexpr (PACKED == 1) {
#pragma unroll
      for (int w = 0; w < WORDS; ++w) shared[lane * PITCH + w] = word[w];
    } else {
#pragma unroll
      for (int w = 0; w < WORDS; ++w) {
        // Four words of four bytes each become four words of their first, second … bytes.
        const unsigned a = __byte_perm(word[4 * w], word[4 * w + 1], 0x5140);
        const unsigned b = __byte_perm(word[4 * w + 2], word[4 * w + 3], 0x5140);
        const unsigned c = __byte_perm(word[4 * w], word[4 * w + 1], 0x7362);
        const unsigned d = __byte_perm(word[4 * w + 2], word[4 * w + 3], 0x7362);
        unsigned* to = shared + lane * 4 * PITCH + (w ^ lane / 8);
        to[0] = __byte_perm(a, b, 0x5410);
        to[PITCH] = __byte_perm(a, b, 0x7632);
        to[2 * PITCH] = __byte_perm(c, d, 0x5410);
        to[3 * PITCH] = __byte_perm(c, d, 0x7632);
      }
    }
  }

  // To rows `column` … of the copy, which are `pitch` elements apart, from element `row` on.
  __device__ __forceinline__ static void store(const unsigned* shared, unsigned char* to, int row, int column,
                                               int columns, int pitch) {
    constexpr int LANES = WORDS / 4, AT_ONCE = 32 / LANES;  // of a row, rows
    const int lane = threadIdx.x % 32, unit = lane % LANES;
    if (row + unit * 4 * PACKED >= pitch) return;
#pragma unroll
    for (int i = 0; i < COLUMNS; i += AT_ONCE) {
      const int n = i + lane / LANES, turned = PACKED == 1 ? 0 : n / 32;
      if (column + n >= columns) continue;
      const unsigned* at = shared + n * PITCH + unit * 4;
      const uint4 four = make_uint4(at[turned], at[1 ^ turned], at[2 ^ turned], at[3 ^ turned]);
      *reinterpret_cast<uint4*>(to + (static_cast<size_t>(column + n) * pitch + row) * ELEMENT_BYTES + unit * 16) = four;
    }
  }
};

// The whole of a factor with K rows of `columns` elements, `pitch` apart, to `columns` rows of `to_pitch` elements, a
// multiple of 16 bytes; by warps of all blocks, as many of each as BYTES of its shared memory are enough for. A warp
// loads its next part while it stores the one before.
template <unsigned BYTES, int WARPS, typename T>
__device__ __forceinline__ void transpose(T* to, int to_pitch, const T* from, int pitch, int K, int columns,
                                          unsigned char* memory) {
  using Mine = Part<sizeof(T)>;
  constexpr int ENOUGH = BYTES / Mine::BYTES, WORKING = ENOUGH < WARPS ? ENOUGH : WARPS;
  static_assert(WORKING > 0, "a warp needs shared memory");
  const int warp = threadIdx.x / 32, across = (columns + Mine::COLUMNS - 1) / Mine::COLUMNS;
  const int parts = across * ((K + Mine::DEPTH - 1) / Mine::DEPTH), step = gridDim.x * WORKING;
  if (warp >= WORKING) return;
  unsigned* shared = reinterpret_cast<unsigned*>(memory + warp * Mine::BYTES);
  const auto bytes = reinterpret_cast<const unsigned char*>(from);
  Mine part;
  int at = blockIdx.x * WORKING + warp;
  const auto load = [&] {
    if (at < parts) part.load(bytes, at / across * Mine::DEPTH, at % across * Mine::COLUMNS, K, columns, pitch);
  };
  load();
  while (at < parts) {
    const int row = at / across * Mine::DEPTH, column = at % across * Mine::COLUMNS;
    part.put(shared);
    __syncwarp();
    at += step;
    load();
    Mine::store(shared, reinterpret_cast<unsigned char*>(to), row, column, columns, to_pitch);
    __syncwarp();
  }
}

// --- Results ---------------------------------------------------------------------------------------------------

// Two neighbouring sums of a row, of which `left` belong to it; at once where `whole` says that they are aligned.
template <typename Sum>
__device__ __forceinline__ void store_two(Sum* to, Sum first, Sum second, int left, bool whole) {
  if (whole && left >= 2) {
    struct alignas(8) Two {
      Sum first, second;
    };
    *reinterpret_cast<Two*>(to) = {first, second};
  } else {
    if (left > 0) to[0] = first;
    if (left > 1) to[1] = second;
  }
}

// The sums of a warpgroup's 64 rows straight to C: a row's eight neighbours are four lanes' pairs, whole sectors.
template <typename Sum, int Sums>
__device__ __forceinline__ void store_sums(const Sum (&sums)[Sums], Sum* C, int ldc, int row, int column, int M,
                                           int N) {
  const int thread = threadIdx.x % 128;
  const bool whole = ldc % 2 == 0 && reinterpret_cast<size_t>(C) % 8 == 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + wgmma::row_of(2 * half, thread);
    if (r >= M) continue;
    Sum* line = C + static_cast<size_t>(r) * ldc;
#pragma unroll
    for (int i = 2 * half; i < Sums; i += 4) {
      const int c = column + wgmma::column_of(i, thread);
      store_two(line + c, sums[i], sums[i + 1], N - c, whole);
    }
  }
}

#ifdef __CUDA_BF16_TYPES_EXIST__
// The same rounded to bfloat16. Neighbouring lanes exchange pairs, so that each has four neighbours of a row and the
// four lanes of a row 16 of them: a whole sector again.
template <int Sums>
__device__ __forceinline__ void store_sums(const float (&sums)[Sums], __nv_bfloat16* C, int ldc, int row, int column,
                                           int M, int N) {
  const int thread = threadIdx.x % 128, lane = thread % 32, odd = lane % 2;
  const bool whole = ldc % 4 == 0 && reinterpret_cast<size_t>(C) % 8 == 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + wgmma::row_of(2 * half, thread);
    __nv_bfloat16* line = C + static_cast<size_t>(r) * ldc;
#pragma unroll
    for (int i = 2 * half; i < Sums; i += 8) {
      unsigned pair[2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const __nv_bfloat162 rounded = __floats2bfloat162_rn(sums[i + 4 * n], sums[i + 4 * n + 1]);
        pair[n] = *reinterpret_cast<const unsigned*>(&rounded);
      }
      const unsigned got = __shfl_xor_sync(0xffffffffu, odd ? pair[0] : pair[1], 1);
      const uint2 four = odd ? make_uint2(got, pair[1]) : make_uint2(pair[0], got);
      const int c = column + i / 4 * 8 + odd * 8 + lane % 4 / 2 * 4, left = N - c;
      if (r >= M || left <= 0) continue;
      if (whole && left >= 4) {
        *reinterpret_cast<uint2*>(line + c) = four;
      } else {
        unsigned short* to = reinterpret_cast<unsigned short*>(line + c);
        to[0] = static_cast<unsigned short>(four.x);
        if (left > 1) to[1] = static_cast<unsigned short>(four.x >> 16);
        if (left > 2) to[2] = static_cast<unsigned short>(four.y);
        if (left > 3) to[3] = static_cast<unsigned short>(four.y >> 16);
      }
    }
  }
}
#endif

}  // namespace k_major
