// A block's walk along K with warp-wide products of matrix fragments (mma.sync).
//
// Shared memory holds a ring of STAGES slots, each a tile BM×BK of A and one BK×BN of B, filled by asynchronous
// copies. One barrier a slot is enough: the slot that it frees is the one that the next copies fill. With AHEAD, the
// fragments of a step are read while those of the step before are multiplied, from the next slot too.
//
// Copies take the widest pieces that base and leading dimension of a matrix allow, 16, 8 or 4 bytes; where rows begin
// at any element of less, they go through registers, element by element. That is the same for a whole launch.
//
// Edges: rows of A beyond the last one are copies of it, which end in sums that nobody stores. Zeros are put beyond
// K, and beyond the last column of B. What lies between the rows of a matrix is not read.
#pragma once

#include "../vector.cuh"
#include "mma_class.cuh"
#include "tile_order.cuh"

// Bytes of the widest piece that the rows of a matrix can be copied in; less than 4 where no copy is asynchronous.
template <typename T> __device__ __forceinline__ int piece_bytes(const T* base, int leading) {
  const size_t any = reinterpret_cast<size_t>(base) | static_cast<size_t>(leading) * sizeof(T);
  return any % 16 == 0 ? 16 : any % 8 == 0 ? 8 : any % 4 == 0 ? 4 : 0;
}

// A value that the compiler knows nothing of. Of the calling thread's number: what copies need is not worked out ahead
// of the walk, where it would take registers all along, which are dearer than the instructions. Of a pointer: it is
// added to in one instruction, and its own parts are not taken apart for that.
template <typename V> __device__ __forceinline__ V opaque(V value) {
#ifndef __SWEEPER_EMULATOR__
  if constexpr (sizeof(V) == 8) {
    asm volatile("" : "+l"(value));
  } else {
    asm volatile("" : "+r"(value));
  }
#endif
  return value;
}

// A matrix on its way into shared memory: tiles of ROWS rows of ROW bytes, whose chunks are spread by Layout::key.
template <typename T, typename Layout, int ROWS, int ROW, int THREADS> struct Copier {
  static constexpr int SIZE = sizeof(T);
  static constexpr int CHUNKS = ROW / 16, STEP = THREADS / CHUNKS, PASSES = ROWS / STEP;
  static_assert(THREADS % CHUNKS == 0 && ROWS % STEP == 0, "a thread copies one column of chunks");
  static_assert((STEP & STEP - 1) == 0, "the rows of a thread differ in bits that its first one has not");

  // All chunks of a tile with whole rows of A or B; where there are only `down` rows, the last stands for the others.
  // A row's place is one multiply-add of 32 bits by 32 to 64.
  template <bool Clamped>
  __device__ __forceinline__ static void whole(unsigned char* tile, const T* from, unsigned leading, int down) {
    const unsigned thread = opaque(threadIdx.x), row = thread / CHUNKS, chunk = thread % CHUNKS;
    unsigned char* const to = tile + row * ROW;
    const unsigned spread = (chunk ^ Layout::key(row)) * 16, last = (down - 1) * SIZE;
    const char* const column = opaque(reinterpret_cast<const char*>(from) + chunk * 16);
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
      const unsigned wanted = row * SIZE + pass * STEP * SIZE;
      ptx::cp_async<16>(to + pass * STEP * ROW + (spread ^ Layout::key(pass * STEP) * 16),
                        column + static_cast<size_t>(Clamped ? min(wanted, last) : wanted) * leading);
    }
  }

  // Of `down` rows, each with `across` elements; zeros beyond them.
  template <int PIECE>
  __device__ __forceinline__ static void pieces(unsigned char* tile, const T* from, size_t leading, int across,
                                                int down) {
    constexpr unsigned PIECES = ROW / PIECE;
#pragma unroll 2
    for (unsigned place = opaque(threadIdx.x); place < ROWS * PIECES; place += THREADS) {
      const unsigned row = place / PIECES, byte = place % PIECES * PIECE;
      const bool there = row < static_cast<unsigned>(down);
      const int valid = there ? min(max(across * SIZE - static_cast<int>(byte), 0), PIECE) : 0;
      ptx::cp_async<PIECE>(tile + row * ROW + (byte / 16 ^ Layout::key(row)) * 16 + byte % 16,
                           valid > 0 ? from + row * leading + byte / SIZE : from, valid);
    }
  }

  __device__ __forceinline__ static void elements(unsigned char* tile, const T* from, size_t leading, int across,
                                                  int down) {
    constexpr unsigned ACROSS = ROW / SIZE;
#pragma unroll 8
    for (unsigned place = opaque(threadIdx.x); place < ROWS * ACROSS; place += THREADS) {
      const unsigned row = place / ACROSS, element = place % ACROSS, byte = element * SIZE;
      T value{};
      const bool there = row < static_cast<unsigned>(down) && element < static_cast<unsigned>(across);
      if (there) value = from[row * leading + element];
      *reinterpret_cast<T*>(tile + row * ROW + (byte / 16 ^ Layout::key(row)) * 16 + byte % 16) = value;
    }
  }

  // The tile whose corner is `from`. `is_whole`: nothing of its rows is missing, and all rows are there or, with
  // Clamped, one at least.
  template <bool Clamped>
  __device__ __forceinline__ static void copy(unsigned char* tile, const T* from, int leading, int across, int down,
                                              int piece, bool is_whole) {
    if (piece == 16 && is_whole) {
      whole<Clamped>(tile, from, leading, down);
    } else if (piece == 16) {
      pieces<16>(tile, from, leading, across, down);
    } else if (piece == 8) {
      pieces<8>(tile, from, leading, across, down);
    } else if constexpr (SIZE <= 4) {
      if (piece == 4) {
        pieces<4>(tile, from, leading, across, down);
      } else if constexpr (SIZE < 4) {
        elements(tile, from, leading, across, down);
      }
    }
  }
};

template <typename Factor, int BM, int BN, int BK, int WM, int WN, int STAGES, int AHEAD> struct Walk {
  using Math = Multiplier<Factor>;
  using Element = typename Math::Element;
  using Sum = typename Math::Sum;
  static constexpr int SIZE = sizeof(Element), THREADS = BM / WM * (BN / WN) * 32;
  static constexpr int ROW_A = BK * SIZE, ROW_B = BN * SIZE, TILE_A = BM * ROW_A, SLOT = TILE_A + BK * ROW_B;
  static constexpr int STEPS = BK / Math::STEP, UNIT = Math::UNIT, TILES = WM / 16, UNITS = WN / (8 * UNIT);
  static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles divide the block tile");
  static_assert(WM % 16 == 0 && WN % (8 * UNIT) == 0 && BK % Math::STEP == 0, "whole fragments");
  static_assert((WN & WN - 1) == 0 && (BK & BK - 1) == 0, "places of chunks are found by exclusive or");
  static_assert(STAGES >= 2 && (!AHEAD || STEPS % 2 == 0), "fragments alternate between two sets");

  using A = typename Math::template A<BM, ROW_A>;
  using B = typename Math::template B<ROW_B>;
  using CopyA = Copier<Element, A, BM, ROW_A, THREADS>;
  using CopyB = Copier<Element, B, BK, ROW_B, THREADS>;
  struct Fragments {
    typename A::Fragment a[TILES];
    typename B::Fragment b[UNITS];
  };

  const Element *a, *b;      // the block's first row of A and first column of B
  int rows, columns, depth;  // how much there is from there
  int lda, ldb;
  int piece_a, piece_b;
  unsigned char* shared;

  __device__ __forceinline__ static unsigned warp_row() { return threadIdx.x / 32 / (BN / WN) * WM; }
  __device__ __forceinline__ static unsigned warp_column() { return threadIdx.x / 32 % (BN / WN) * WN; }

  // Starts the copies into the slot whose first k is k0; there may be none.
  __device__ __forceinline__ void fetch(unsigned char* slot, int k0) const {
    if (k0 >= depth) return;
    const bool deep = depth - k0 >= BK;
    const Element* const left = a + k0;
    const Element* const right = b + static_cast<size_t>(k0) * ldb;
    CopyA::template copy<true>(slot, left, lda, depth - k0, rows, piece_a, deep);
    CopyB::template copy<false>(slot + TILE_A, right, ldb, columns, depth - k0, piece_b, deep && columns >= BN);
  }

  __device__ __forceinline__ void run(Sum (&sum)[TILES][UNITS * UNIT][4]) const {
    const int slots = (depth + BK - 1) / BK;
#pragma unroll 1
    for (int stage = 0; stage < STAGES - 1; ++stage) {
      fetch(shared + stage * SLOT, stage * BK);
      ptx::cp_async_commit();
    }
    ptx::cp_async_wait<STAGES - 2>();
    __syncthreads();

    const typename A::Place at_a = A::place(warp_row());
    const typename B::Place at_b = B::place(warp_column());
    Fragments fragments[1 + AHEAD];
    auto read = [&](Fragments& to, const unsigned char* slot, int step) {
      A::read(to.a, slot, at_a, step);
      B::read(to.b, slot + TILE_A, at_b, step);
    };
    if (AHEAD) read(fragments[0], shared, 0);

    int current = 0;
    for (int s = 0; s < slots; ++s) {
      unsigned char* const other = shared + (current == 0 ? STAGES - 1 : current - 1) * SLOT;
      unsigned char* slot = shared + current * SLOT;
      auto turn = [&] {
        ptx::cp_async_wait<STAGES - 2>();
        __syncthreads();
        // What is read after the last slot is not used, but has to be there.
        if (s + 1 < slots) current = current + 1 == STAGES ? 0 : current + 1;
        slot = shared + current * SLOT;
      };
#pragma unroll
      for (int step = 0; step < STEPS; ++step) {
        if (AHEAD) {
          if (step == STEPS - 1) turn();
          read(fragments[(step + 1) % 2], slot, (step + 1) % STEPS);
        } else {
          read(fragments[0], slot, step);
        }
        const Fragments& now = fragments[AHEAD ? step % 2 : 0];
        Math::multiply(sum, now.a, now.b);
        // Here, where only one set of fragments is alive.
        if (step == 0) {
          fetch(other, (s + STAGES - 1) * BK);
          ptx::cp_async_commit();
        }
      }
      if (!AHEAD) turn();
    }
  }

  // Writes what lies in the matrix; c is where the block's tile begins. A lane has two neighbouring columns of a tile,
  // or 2·UNIT of UNIT tiles that alternate.
  template <typename T>
  __device__ __forceinline__ void store(const Sum (&sum)[TILES][UNITS * UNIT][4], T* c, int ldc) const {
    constexpr int RUN = Math::INTERLEAVED ? 2 * UNIT : 2, TOGETHER = RUN / 2;
    constexpr int WIDTH = RUN * static_cast<int>(sizeof(T)) > 16 ? 16 / static_cast<int>(sizeof(T)) : RUN;
    const bool aligned = rows_aligned<T, WIDTH>(c, ldc);
#pragma unroll
    for (int i = 0; i < TILES * 2; ++i) {
      const int row = static_cast<int>(warp_row() + i * 8 + lane_group());
      if (row >= rows) continue;
#pragma unroll
      for (int j = 0; j < UNITS * UNIT; j += TOGETHER) {
        const int column = static_cast<int>(warp_column() + j * 8 + lane_in_group() * RUN);
#pragma unroll
        for (int part = 0; part < RUN; part += WIDTH) {
          Vector<T, WIDTH> out;
#pragma unroll
          for (int v = 0; v < WIDTH; ++v) {
            const int element = part + v;
            out.value[v] = static_cast<T>(sum[i / 2][j + element % TOGETHER][i % 2 * 2 + element / TOGETHER]);
          }
          store_run<T, WIDTH>(c + static_cast<size_t>(row) * ldc, column + part, columns, aligned, out);
        }
      }
    }
  }
};

// One block, one tile of C.
template <typename Factor, int BM, int BN, int BK, int WM, int WN, int STAGES, int GROUP, int AHEAD, typename T>
__device__ __forceinline__ void multiply_tile(const typename Multiplier<Factor>::Element* A,
                                              const typename Multiplier<Factor>::Element* B, T* C, int M, int N, int K,
                                              int lda, int ldb, int ldc) {
  extern __shared__ __align__(128) unsigned char memory[];
  using Way = Walk<Factor, BM, BN, BK, WM, WN, STAGES, AHEAD>;
  int row, column;
  tile_order::locate<GROUP, tile_order::BY_ROWS>(blockIdx.x, (M + BM - 1) / BM, (N + BN - 1) / BN, row, column);
  row *= BM;
  column *= BN;
  const Way walk{A + static_cast<size_t>(row) * lda,
                 B + column,
                 M - row,
                 N - column,
                 K,
                 lda,
                 ldb,
                 piece_bytes(A, lda),
                 piece_bytes(B, ldb),
                 memory};
  typename Way::Sum sum[Way::TILES][Way::UNITS * Way::UNIT][4] = {};
  walk.run(sum);
  walk.store(sum, C + static_cast<size_t>(row) * ldc + column, ldc);
}
