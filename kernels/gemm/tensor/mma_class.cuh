// What the warp-wide products of each precision class look like: the shape of one step of k, how its operands come
// from tiles in shared memory, and where its sums lie. mma_walk.cuh does the rest, the same for all.
//
// Tiles are rows of 16-byte chunks, A with k along its rows (row-major, as it comes), B with n along them (so too).
// Chunk c of row r lies at place c ^ key(r) of its row, so that the lanes that read together meet no bank twice.
// Keys pick bits of the row and put them elsewhere, and so key(r | s) = key(r) ^ key(s) where r and s share no bit.
//
// An operand's order of k is free as long as both have the same, and so is the order of columns in a warp's part of B
// as long as the sums leave by it. Both are chosen here such that operands come in few, wide reads.
#pragma once

#include "../../common/ptx.cuh"
#include "../element.cuh"

// Operands by ldmatrix: 8 rows of 16 bytes each read that together touch every bank once.
template <int CHUNKS> __device__ __forceinline__ constexpr unsigned spread_rows(unsigned row) {
  return CHUNKS >= 8 ? row % 8 : row / (8 / CHUNKS) % CHUNKS;
}

__device__ __forceinline__ unsigned lane_id() { return threadIdx.x % 32; }
__device__ __forceinline__ unsigned lane_group() { return lane_id() / 4; }  // "groupID" of the fragments' tables
__device__ __forceinline__ unsigned lane_in_group() { return lane_id() % 4; }

// A by ldmatrix_x4, 32 bytes of k a step, for elements of 1, 2 and 4 bytes alike.
template <int BM, int ROW> struct MatrixA {
  static constexpr int CHUNKS = ROW / 16;
  using Fragment = unsigned[4];

  __device__ __forceinline__ static constexpr unsigned key(unsigned row) { return spread_rows<CHUNKS>(row); }

  // Where the calling lane's row begins, and the chunk it reads of step 0.
  struct Place {
    unsigned row, chunk;
  };
  __device__ __forceinline__ static Place place(unsigned first_row) {
    const unsigned row = first_row + lane_id() % 16;
    return {row * ROW, (lane_id() / 16 ^ key(row)) * 16};
  }

  template <int TILES>
  __device__ __forceinline__ static void read(Fragment (&a)[TILES], const unsigned char* tile, Place at, int step) {
    const unsigned char* const from = tile + at.row + (at.chunk ^ step * 32);
#pragma unroll
    for (int i = 0; i < TILES; ++i) ptx::ldmatrix_x4(a[i], from + i * 16 * ROW);
  }
};

// The multiplier of a class has:
//   Element, Sum    types in memory and of sums
//   STEP            k that one step takes
//   UNIT            tiles of 8 columns whose operands one read of B brings
//   INTERLEAVED     whether the columns of these tiles alternate: column c of tile u is column UNIT·c + u
//   A<BM, ROW>      reads of A, as MatrixA
//   B<ROW>          reads of B
//   multiply        sum += a·b of one step
template <typename Factor> struct Multiplier;

// --- 16-bit: m16n8k16 ---

template <int ROW, int BYTES> struct MatrixB16 {
  static constexpr int CHUNKS = ROW / 16;
  static_assert(CHUNKS >= 8, "a row of B has 128 bytes at least");
  using Fragment = unsigned[4];

  __device__ __forceinline__ static constexpr unsigned key(unsigned k) { return k % 8; }

  struct Place {
    unsigned row, chunk;
  };
  __device__ __forceinline__ static Place place(unsigned first_column) {
    const unsigned k = lane_id() % 16;
    return {k * ROW, (first_column * BYTES / 16 + lane_id() / 16 ^ key(k)) * 16};
  }

  template <int UNITS>
  __device__ __forceinline__ static void read(Fragment (&b)[UNITS], const unsigned char* tile, Place at, int step) {
    const unsigned char* const from = tile + at.row + step * 16 * ROW;
#pragma unroll
    for (int j = 0; j < UNITS; ++j) ptx::ldmatrix_x4_trans(b[j], from + (at.chunk ^ j * 32));
  }
};

template <typename T> struct Multiplier16 {
  using Element = T;
  using Sum = float;
  static constexpr int STEP = 16, UNIT = 2;
  static constexpr bool INTERLEAVED = false;
  template <int BM, int ROW> using A = MatrixA<BM, ROW>;
  template <int ROW> using B = MatrixB16<ROW, 2>;

  __device__ __forceinline__ static void product(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]);

  template <int TILES, int UNITS>
  __device__ __forceinline__ static void multiply(float (&sum)[TILES][UNITS * UNIT][4], const unsigned (&a)[TILES][4],
                                                  const unsigned (&b)[UNITS][4]) {
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
#pragma unroll
      for (int turn = 0; turn < UNITS * UNIT; ++turn) {
        const int j = i % 2 == 0 ? turn : UNITS * UNIT - 1 - turn;
        const unsigned column[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
        product(sum[i][j], a[i], column);
      }
    }
  }
};

#ifdef __CUDA_FP16_TYPES_EXIST__
template <> struct Multiplier<__half> : Multiplier16<__half> {};
template <>
__device__ __forceinline__ void Multiplier16<__half>::product(float (&sum)[4], const unsigned (&a)[4],
                                                              const unsigned (&b)[2]) {
  ptx::mma_m16n8k16_f16(sum, a, b, sum);
}
#endif
#ifdef __CUDA_BF16_TYPES_EXIST__
template <> struct Multiplier<__nv_bfloat16> : Multiplier16<__nv_bfloat16> {};
template <>
__device__ __forceinline__ void Multiplier16<__nv_bfloat16>::product(float (&sum)[4], const unsigned (&a)[4],
                                                                     const unsigned (&b)[2]) {
  ptx::mma_m16n8k16_bf16(sum, a, b, sum);
}
#endif

// --- int8: m16n8k32 ---
//
// A register of B takes four neighbours of k in one column. ldmatrix transposes units of 16 bits, two columns here;
// given rows 0, 1, 4, 5, 8, … and 2, 3, 6, 7, 10, … it brings two registers with k = 4t … 4t + 3 of two columns, and
// one byte permute makes a register of each.
template <int ROW> struct MatrixB8 {
  static constexpr int CHUNKS = ROW / 16;
  static_assert(CHUNKS >= 8, "a row of B has 128 bytes at least");
  using Fragment = unsigned[4];

  __device__ __forceinline__ static constexpr unsigned key(unsigned k) { return k % 2 + k / 4 % 4 * 2; }

  struct Place {
    unsigned row, chunk;
  };
  __device__ __forceinline__ static Place place(unsigned first_column) {
    const unsigned row = lane_id() % 8, matrix = lane_id() / 8;
    const unsigned k = row / 2 * 4 + row % 2 + matrix % 2 * 2 + matrix / 2 * 16;
    return {k * ROW, (first_column / 16 ^ key(k)) * 16};
  }

  template <int UNITS>
  __device__ __forceinline__ static void read(Fragment (&b)[UNITS], const unsigned char* tile, Place at, int step) {
    const unsigned char* const from = tile + at.row + step * 32 * ROW;
#pragma unroll
    for (int j = 0; j < UNITS; ++j) ptx::ldmatrix_x4_trans(b[j], from + (at.chunk ^ j * 16));
  }
};

template <> struct Multiplier<signed char> {
  using Element = signed char;
  using Sum = int;
  static constexpr int STEP = 32, UNIT = 2;
  static constexpr bool INTERLEAVED = true;
  template <int BM, int ROW> using A = MatrixA<BM, ROW>;
  template <int ROW> using B = MatrixB8<ROW>;

  template <int TILES, int UNITS>
  __device__ __forceinline__ static void multiply(int (&sum)[TILES][UNITS * UNIT][4], const unsigned (&a)[TILES][4],
                                                  const unsigned (&b)[UNITS][4]) {
#pragma unroll
    for (int j = 0; j < UNITS; ++j) {
      const unsigned even[2] = {__byte_perm(b[j][0], b[j][1], 0x6420), __byte_perm(b[j][2], b[j][3], 0x6420)};
      const unsigned odd[2] = {__byte_perm(b[j][0], b[j][1], 0x7531), __byte_perm(b[j][2], b[j][3], 0x7531)};
#pragma unroll
      for (int i = 0; i < TILES; ++i) {
        ptx::mma_m16n8k32_s8(sum[i][2 * j], a[i], even, sum[i][2 * j]);
        ptx::mma_m16n8k32_s8(sum[i][2 * j + 1], a[i], odd, sum[i][2 * j + 1]);
      }
    }
  }
};

// --- tf32: m16n8k8 ---
//
// A lane reads 16 bytes of a row of B: one column of each of four tiles.
struct alignas(16) FourFloats {
  float value[4];
};

template <int ROW> struct MatrixB32 {
  static constexpr int CHUNKS = ROW / 16;
  static_assert(CHUNKS >= 8, "a row of B has 128 bytes at least");
  using Fragment = FourFloats[2];

  __device__ __forceinline__ static constexpr unsigned key(unsigned k) { return k % 4 * 2; }

  struct Place {
    unsigned row, chunk;
  };
  __device__ __forceinline__ static Place place(unsigned first_column) {
    const unsigned k = lane_in_group();
    return {k * ROW, (first_column / 4 + lane_group() ^ key(k)) * 16};
  }

  template <int UNITS>
  __device__ __forceinline__ static void read(Fragment (&b)[UNITS], const unsigned char* tile, Place at, int step) {
    const unsigned char* const from = tile + at.row + at.chunk + step * 8 * ROW;
#pragma unroll
    for (int j = 0; j < UNITS; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        b[j][half] = *reinterpret_cast<const FourFloats*>(from + half * 4 * ROW + j * 128);
      }
    }
  }
};

struct Float32Operands {
  using Element = float;
  using Sum = float;
  static constexpr int STEP = 8, UNIT = 4;
  static constexpr bool INTERLEAVED = true;
  template <int BM, int ROW> using A = MatrixA<BM, ROW>;
  template <int ROW> using B = MatrixB32<ROW>;
};

// Operands rounded to nearest: the multiplier itself cuts off what lies below 11 bits, so it is enough to add half of
// the last of these, which is the power of two of the operand times 2^-11. For tf32 this is what cvt.rna does, in two
// instructions instead of three: Hopper has none for it, and infinities and what is no number need no care here.
struct Tf32 {};

template <> struct Multiplier<Tf32> : Float32Operands {
  __device__ __forceinline__ static unsigned nearest(float value) {
    const float power = __uint_as_float(__float_as_uint(value) & 0xff800000u);
    return __float_as_uint(fmaf(power, 0x1p-11f, value));
  }

  template <int TILES, int UNITS>
  __device__ __forceinline__ static void multiply(float (&sum)[TILES][UNITS * UNIT][4], const unsigned (&a)[TILES][4],
                                                  const FourFloats (&b)[UNITS][2]) {
    unsigned left[TILES][4];
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) left[i][r] = nearest(__uint_as_float(a[i][r]));
    }
#pragma unroll
    for (int j = 0; j < UNITS * UNIT; ++j) {
      const FourFloats* const half = b[j / UNIT];
      const unsigned right[2] = {nearest(half[0].value[j % UNIT]), nearest(half[1].value[j % UNIT])};
#pragma unroll
      for (int i = 0; i < TILES; ++i) ptx::mma_m16n8k8_tf32(sum[i][j], left[i], right, sum[i][j]);
    }
  }
};

// An operand as the sum of two of 11 bits, of whose four products the three larger are added up: 22 bits are kept. The
// upper part is rounded to nearest; the lower one has 12 bits and a sign, of which the multiplier cuts off one. (What
// is no number passes through the lower part, whatever becomes of it in the upper.)
// The tensor cores cut sums off instead of rounding them, by as much at every step as float32 errs in one. So a sum
// stays there for one step only and is then added up in float32.
struct Tf32x3 {};

template <> struct Multiplier<Tf32x3> : Float32Operands {
  struct Parts {
    unsigned high, low;
  };
  __device__ __forceinline__ static Parts parts(float value) {
    const unsigned high = (__float_as_uint(value) + 0x1000u) & 0xffffe000u;
    return {high, __float_as_uint(value - __uint_as_float(high))};
  }

  template <int TILES, int UNITS>
  __device__ __forceinline__ static void multiply(float (&sum)[TILES][UNITS * UNIT][4], const unsigned (&a)[TILES][4],
                                                  const FourFloats (&b)[UNITS][2]) {
    unsigned high[TILES][4], low[TILES][4];
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const Parts both = parts(__uint_as_float(a[i][r]));
        high[i][r] = both.high;
        low[i][r] = both.low;
      }
    }
    // Each instruction waits for the one before it in its sum, so that as many sums as a unit has take turns.
#pragma unroll
    for (int unit = 0; unit < UNITS; ++unit) {
      unsigned high_b[UNIT][2], low_b[UNIT][2];
#pragma unroll
      for (int r = 0; r < 2 * UNIT; ++r) {
        const Parts both = parts(b[unit][r % 2].value[r / 2]);
        high_b[r / 2][r % 2] = both.high;
        low_b[r / 2][r % 2] = both.low;
      }
      float part[UNIT][TILES][4] = {};
#pragma unroll
      for (int t = 0; t < UNIT * TILES; ++t) {
        float(&to)[4] = part[t / TILES][t % TILES];
        ptx::mma_m16n8k8_tf32(to, low[t % TILES], high_b[t / TILES], to);
      }
#pragma unroll
      for (int t = 0; t < UNIT * TILES; ++t) {
        float(&to)[4] = part[t / TILES][t % TILES];
        ptx::mma_m16n8k8_tf32(to, high[t % TILES], low_b[t / TILES], to);
      }
#pragma unroll
      for (int t = 0; t < UNIT * TILES; ++t) {
        float(&to)[4] = part[t / TILES][t % TILES];
        ptx::mma_m16n8k8_tf32(to, high[t % TILES], high_b[t / TILES], to);
      }
#pragma unroll
      for (int t = 0; t < UNIT * TILES; ++t) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[t % TILES][unit * UNIT + t / TILES][e] += part[t / TILES][t % TILES][e];
      }
    }
  }
};

// --- float64: m16n8k16, m16n8k8, m16n8k4 or m8n8k4, which all hold elements in the same lanes ---
//
// An operand is a run of registers, as long as 16 for A. Reads of 16 bytes would bring elements that lie apart in it
// and have to be moved, twice as many instructions as there are now; reads of 8 bring each where it is used.
template <int BM, int ROW, int QUADS> struct MatrixA64 {
  static constexpr int CHUNKS = ROW / 16;
  using Fragment = double[QUADS * 2];

  __device__ __forceinline__ static constexpr unsigned key(unsigned row) {
    return CHUNKS >= 8 ? row % 4 * 2 : row / 2 % 2 * 2;
  }

  // Where the calling lane's row begins, and the bytes to its k of quad 0.
  struct Place {
    unsigned row, byte;
  };
  __device__ __forceinline__ static Place place(unsigned first_row) {
    const unsigned row = first_row + lane_group();
    return {row * ROW, lane_in_group() * 8 ^ key(row) * 16};
  }

  template <int TILES>
  __device__ __forceinline__ static void read(Fragment (&a)[TILES], const unsigned char* tile, Place at, int step) {
#pragma unroll
    for (int quad = 0; quad < QUADS; ++quad) {
      const unsigned char* const from = tile + at.row + (at.byte ^ (step * QUADS + quad) * 32);
#pragma unroll
      for (int i = 0; i < TILES * 2; ++i) {
        a[i / 2][quad * 2 + i % 2] = *reinterpret_cast<const double*>(from + i * 8 * ROW);
      }
    }
  }
};

template <int ROW, int QUADS> struct MatrixB64 {
  static constexpr int CHUNKS = ROW / 16;
  static_assert(CHUNKS >= 8, "a row of B has 128 bytes at least");
  using Fragment = double[QUADS];

  __device__ __forceinline__ static constexpr unsigned key(unsigned k) { return k % 4 * 2; }

  struct Place {
    unsigned row, byte;
  };
  __device__ __forceinline__ static Place place(unsigned first_column) {
    const unsigned k = lane_in_group();
    return {k * ROW, (first_column + lane_group()) * 8 ^ key(k) * 16};
  }

  template <int UNITS>
  __device__ __forceinline__ static void read(Fragment (&b)[UNITS], const unsigned char* tile, Place at, int step) {
    const unsigned char* const from = tile + at.row + step * QUADS * 4 * ROW;
#pragma unroll
    for (int j = 0; j < UNITS; ++j) {
#pragma unroll
      for (int quad = 0; quad < QUADS; ++quad) {
        b[j][quad] = *reinterpret_cast<const double*>(from + quad * 4 * ROW + (at.byte ^ j * 64));
      }
    }
  }
};

template <int ROWS, int DEPTH> struct Dmma {};

template <int ROWS, int DEPTH> struct Multiplier<Dmma<ROWS, DEPTH>> {
  static_assert(DEPTH == 4 || (ROWS == 16 && (DEPTH == 8 || DEPTH == 16)), "there are 8×4 and 16×4, 16×8, 16×16");
  static constexpr int QUADS = DEPTH / 4;
  using Element = double;
  using Sum = double;
  static constexpr int STEP = DEPTH, UNIT = 1;
  static constexpr bool INTERLEAVED = false;
  template <int BM, int ROW> using A = MatrixA64<BM, ROW, QUADS>;
  template <int ROW> using B = MatrixB64<ROW, QUADS>;

  __device__ __forceinline__ static void product(double (&sum)[4], const double (&a)[QUADS * 2],
                                                 const double (&b)[QUADS]) {
    if constexpr (DEPTH == 16) {
      ptx::mma_m16n8k16_f64(sum, a, b, sum);
    } else if constexpr (DEPTH == 8) {
      ptx::mma_m16n8k8_f64(sum, a, b, sum);
    } else if constexpr (ROWS == 16) {
      ptx::mma_m16n8k4_f64(sum, a, b, sum);
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        double part[2] = {sum[2 * half], sum[2 * half + 1]};
        const double left[1] = {a[half]};
        ptx::mma_m8n8k4_f64(part, left, b, part);
        sum[2 * half] = part[0];
        sum[2 * half + 1] = part[1];
      }
    }
  }

  template <int TILES, int UNITS>
  __device__ __forceinline__ static void multiply(double (&sum)[TILES][UNITS][4], const double (&a)[TILES][QUADS * 2],
                                                  const double (&b)[UNITS][QUADS]) {
#pragma unroll
    for (int j = 0; j < UNITS; ++j) {
#pragma unroll
      for (int i = 0; i < TILES; ++i) product(sum[i][j], a[i], b[j]);
    }
  }
};
