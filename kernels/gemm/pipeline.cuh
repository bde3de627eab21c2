// A block's walk along K, fed by asynchronous copies: what rungs 7 and 9 have in common.
//
// Shared memory holds a ring of STAGES slots, each with BK rows of a tile of A (transposed, padded) and of B.
// While the block computes one slot, the copies into the STAGES - 1 next ones are under way. One barrier a slot
// is enough: the slot that it frees is the one that the next copies fill. They are started in BURSTS, spread over
// the time of a slot, so that they stand less in the way of what the products read (H200, 4096³: four bursts gain
// 1 % with 128×256×32 and 8×16 a thread, two lose 3 % with 128×128×16 and 8×8).
//
// A warp computes WM×WN by LANES_M×LANES_N lanes, each TM×TN elements in chunks of 16 bytes along both sides:
// lane (m, n) has the chunks of rows m, m + LANES_M, … and those of columns n, n + LANES_N, … . The fragments of
// step k + 1 are read while those of step k are multiplied, from the next slot too. A read of 16 bytes a lane takes
// half the passes where pairs of lanes read the same, which PAIRED arranges for both matrices: shared memory is
// busy in 36 instead of 56 % of the time (the same product). That is for small thread tiles, where few products
// follow a read; with 8×16 it is not what holds the kernel up, and costs 2 %.
//
// What the speed hangs on is the register file. It has two banks, the even and the odd registers, and each
// gives one operand a cycle; a multiply-add needs three, so one has to come from the operand cache (`.reuse` in
// SASS), and the other two from different banks.
//
//   - The products go along the rows, forth and back: neighbours share a value of A, and one of B at the turn.
//   - Fragments come in chunks, so the value of B for column j lies in a register of j's parity. The sum has to
//     lie in the other one. Where sums lie follows from how they leave: they leave in chunks whose columns are
//     swapped in pairs, through shared memory, where they are swapped back. Stored as they are, the sums take
//     the parity of their column, and all but 4 in 1000 multiply-adds read a bank twice; so do 3 in 100.
//   - The loop over k is unrolled UNROLL times and no further. In a longer run of code the compiler moves
//     products of several steps among each other and loses the order along the rows.
//
// Edges: copies beyond the last row or column read the first or the last one (what they bring is computed with
// and never stored), so only K needs zeros, and only in the last slot. A is copied element by element, which
// transposes it; B by chunks where N, its leading dimension and its base allow that, else by elements.
#pragma once

#include "../common/ptx.cuh"
#include "element.cuh"

template <typename T> struct alignas(16) Chunk {
  static constexpr int WIDTH = 16 / sizeof(T);
  T value[WIDTH];
};

template <typename T> __device__ __forceinline__ bool chunks_aligned(const T* base, int leading) {
  return reinterpret_cast<size_t>(base) % sizeof(Chunk<T>) == 0 && leading % Chunk<T>::WIDTH == 0;
}

// Where a block's tile begins. Tiles are taken in bands of GROUP rows, each band column by column, so that blocks
// that run at the same time share rows of A and columns of B in the second-level cache.
struct Origin {
  int row, column;
};

template <int BM, int BN, int GROUP> __device__ __forceinline__ Origin tile_origin(int tile, int M, int N) {
  const int tiles_m = (M + BM - 1) / BM, tiles_n = (N + BN - 1) / BN;
  const int first = tile / (GROUP * tiles_n) * GROUP, height = min(GROUP, tiles_m - first);
  const int inside = tile % (GROUP * tiles_n);
  return {(first + inside % height) * BM, inside / height * BN};
}

template <typename T, int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int UNROLL, int BURSTS,
          int PAIRED>
struct Pipeline {
  static constexpr int WIDTH = Chunk<T>::WIDTH;
  static constexpr int WARPS_N = BN / WN, THREADS = (BM / WM) * WARPS_N * 32;
  static constexpr int LANES_M = WM / TM, LANES_N = WN / TN;
  static constexpr int CHUNKS_M = TM / WIDTH, CHUNKS_N = TN / WIDTH;
  static constexpr int LD = BM + WIDTH;  // a row of the tile of A; the pad spreads a column over the banks
  static constexpr int SLOT = BK * (LD + BN);
  static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles divide the block tile");
  static_assert(WM % TM == 0 && WN % TN == 0 && LANES_M * LANES_N == 32, "32 thread tiles make a warp tile");
  static_assert(TM % WIDTH == 0 && TN % WIDTH == 0 && STAGES >= 2, "whole chunks, two slots at least");
  static_assert(UNROLL % 2 == 0 && BK / BURSTS % UNROLL == 0, "fragments alternate between two sets");

  // How a thread's copies are laid out. A warp reads 8 neighbouring elements of 4 rows of A: whole sectors of
  // 32 bytes, and every bank once where they go. Of B it reads neighbouring chunks of a row.
  static constexpr int RUN = 8, ROWS = THREADS / RUN, PASSES_A = BM / ROWS;
  static constexpr int CHUNKS_B = BN / WIDTH, CHUNK_STEP = THREADS / CHUNKS_B, CHUNK_PASSES = BK / CHUNK_STEP;
  static_assert(BK % (RUN * BURSTS) == 0 && BM % ROWS == 0, "a pass takes whole rows of A");
  static_assert(THREADS % CHUNKS_B == 0 && BK * CHUNKS_B % THREADS == 0, "a thread copies one column of chunks");
  static_assert(BK * BN % THREADS == 0, "every thread copies the same");

  const T *a, *b;                      // the block's first row of A and first column of B, at its first k
  int rows, columns, depth, lda, ldb;  // how much there is from there
  bool wide;                           // whether B can be copied by chunks
  T* shared;

  // Element by element: a row of B is THREADS elements a pass, or a pass takes several rows.
  static constexpr int SPREAD = BN > THREADS ? BN / THREADS : 1, STEP = THREADS / (BN / SPREAD);
  static constexpr int PASSES_B = BK / STEP;
  static_assert(BN % SPREAD == 0 && STEP * (BN / SPREAD) == THREADS && BK % STEP == 0, "passes take whole rows of B");

  struct Fragments {
    Chunk<T> a[CHUNKS_M], b[CHUNKS_N];
  };

  // Where a thread copies from next.
  struct Sources {
    const T* a[PASSES_A];
    const T* b;
  };

  __device__ __forceinline__ Sources sources() const {
    Sources from;
    const int thread = threadIdx.x;
#pragma unroll
    for (int pass = 0; pass < PASSES_A; ++pass) {
      from.a[pass] = a + static_cast<size_t>(min(thread / RUN + pass * ROWS, rows - 1)) * lda + thread % RUN;
    }
    const int column = thread % CHUNKS_B * WIDTH;
    from.b = b + static_cast<size_t>(thread / CHUNKS_B) * ldb + (column < columns ? column : 0);
    return from;
  }

  // Starts one of the BURSTS of copies into a slot whose steps all lie before the end of K; moves the sources on.
  template <int BURST> __device__ __forceinline__ void fetch_whole(T* slot, int k0, Sources& from) const {
    const int thread = threadIdx.x;
    T* const a_to = slot + thread % RUN * LD + thread / RUN;
#pragma unroll
    for (int pass = 0; pass < PASSES_A; ++pass) {
#pragma unroll
      for (int k = BURST * BK / BURSTS; k < (BURST + 1) * BK / BURSTS; k += RUN) {
        ptx::cp_async<sizeof(T)>(a_to + k * LD + pass * ROWS, from.a[pass] + k);
      }
      if (BURST == BURSTS - 1) from.a[pass] += BK;
    }
    T* const b_slot = slot + BK * LD;
    if (wide) {
      T* const b_to = b_slot + thread / CHUNKS_B * BN + thread % CHUNKS_B * WIDTH;
#pragma unroll
      for (int pass = BURST * CHUNK_PASSES / BURSTS; pass < (BURST + 1) * CHUNK_PASSES / BURSTS; ++pass) {
        ptx::cp_async<16>(b_to + pass * CHUNK_STEP * BN, from.b);
        from.b += static_cast<size_t>(CHUNK_STEP) * ldb;
      }
    } else {
      constexpr int FIRST = BURST * PASSES_B / BURSTS, BEHIND = (BURST + 1) * PASSES_B / BURSTS;
      const int row = thread / (BN / SPREAD), column = thread % (BN / SPREAD);
      T* const b_to = b_slot + row * BN + column;
      const T* b_from = b + static_cast<size_t>(k0 + row + FIRST * STEP) * ldb + (column < columns ? column : 0);
#pragma unroll
      for (int pass = FIRST; pass < BEHIND; ++pass) {
#pragma unroll
        for (int spread = 0; spread < BN; spread += BN / SPREAD) {
          const int ahead = column + spread < columns ? spread : 0;
          ptx::cp_async<sizeof(T)>(b_to + pass * STEP * BN + spread, b_from + ahead);
        }
        b_from += static_cast<size_t>(STEP) * ldb;
      }
    }
  }

  // All of the slot in which K ends: zeros from there on.
  __device__ __forceinline__ void fetch_last(T* slot, int k0) const {
    const int thread = threadIdx.x;
    T* const a_to = slot + thread % RUN * LD + thread / RUN;
#pragma unroll 2
    for (int pass = 0; pass < PASSES_A; ++pass) {
      const T* const from = a + static_cast<size_t>(min(thread / RUN + pass * ROWS, rows - 1)) * lda + k0;
#pragma unroll
      for (int k = 0; k < BK; k += RUN) {
        const bool inside = k0 + k + thread % RUN < depth;
        ptx::cp_async<sizeof(T)>(a_to + k * LD + pass * ROWS, inside ? from + k + thread % RUN : a,
                                 inside ? sizeof(T) : 0);
      }
    }
#pragma unroll 2
    for (int i = 0; i < BK * BN / THREADS; ++i) {
      const int k = (thread + i * THREADS) / BN, column = (thread + i * THREADS) % BN;
      const bool inside = column < columns && k0 + k < depth;
      ptx::cp_async<sizeof(T)>(slot + BK * LD + k * BN + column,
                               inside ? b + static_cast<size_t>(k0 + k) * ldb + column : b, inside ? sizeof(T) : 0);
    }
  }

  // Starts one of the BURSTS of copies into the slot whose first step is k0; there may be none.
  template <int BURST> __device__ __forceinline__ void fetch(T* slot, int k0, Sources& from) const {
    if (depth - k0 >= BK) {
      fetch_whole<BURST>(slot, k0, from);
    } else if (BURST == 0 && k0 < depth) {
      fetch_last(slot, k0);
    }
  }

  template <int BURST = 0> __device__ __forceinline__ void fetch_slot(T* slot, int k0, Sources& from) const {
    fetch<BURST>(slot, k0, from);
    if constexpr (BURST + 1 < BURSTS) fetch_slot<BURST + 1>(slot, k0, from);
  }

  // With PAIRED, lanes l and l ^ 1 have the same rows, l and l ^ 2 the same columns.
  static constexpr bool PAIRS = PAIRED && LANES_M > 1 && LANES_N > 1;
  static constexpr int HALF_N = LANES_N > 1 ? LANES_N / 2 : 1;
  __device__ __forceinline__ static int lane_m() {
    const int lane = threadIdx.x % 32;
    return PAIRS ? lane / 2 % 2 + lane / 4 / HALF_N * 2 : lane / LANES_N;
  }
  __device__ __forceinline__ static int lane_n() {
    const int lane = threadIdx.x % 32;
    return PAIRS ? lane % 2 + lane / 4 % HALF_N * 2 : lane % LANES_N;
  }
  __device__ __forceinline__ static int warp_row() { return threadIdx.x / 32 / WARPS_N * WM; }
  __device__ __forceinline__ static int warp_column() { return threadIdx.x / 32 % WARPS_N * WN; }

  __device__ __forceinline__ static void read(Fragments& fragments, const T* a_at, const T* b_at, int k) {
#pragma unroll
    for (int i = 0; i < CHUNKS_M; ++i) {
      fragments.a[i] = *reinterpret_cast<const Chunk<T>*>(a_at + k * LD + i * LANES_M * WIDTH);
    }
#pragma unroll
    for (int j = 0; j < CHUNKS_N; ++j) {
      fragments.b[j] = *reinterpret_cast<const Chunk<T>*>(b_at + k * BN + j * LANES_N * WIDTH);
    }
  }

  __device__ __forceinline__ static void multiply(T (&sum)[TM][TN], const Fragments& fragments) {
#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
      for (int turn = 0; turn < TN; ++turn) {
        const int j = i % 2 == 0 ? turn : TN - 1 - turn;
        sum[i][j] += fragments.a[i / WIDTH].value[i % WIDTH] * fragments.b[j / WIDTH].value[j % WIDTH];
      }
    }
  }

  // Where a thread's first chunks lie, of the slot that is multiplied.
  struct Place {
    const T *a, *b;
  };

  // All steps of a slot but the last UNROLL; meanwhile, burst by burst, the copies into another.
  template <int BURST = 0>
  __device__ __forceinline__ void multiply_slot(T (&sum)[TM][TN], Fragments (&fragments)[2], Place& at, T* other,
                                                int k0, Sources& from) const {
    fetch<BURST>(other, k0, from);
#pragma unroll 1
    for (int step = 0; step < BK / BURSTS - (BURST + 1 < BURSTS ? 0 : UNROLL); step += UNROLL) {
#pragma unroll
      for (int k = 0; k < UNROLL; ++k) {
        read(fragments[(k + 1) % 2], at.a, at.b, k + 1);
        multiply(sum, fragments[k % 2]);
      }
      at.a += UNROLL * LD;
      at.b += UNROLL * BN;
    }
    if constexpr (BURST + 1 < BURSTS) multiply_slot<BURST + 1>(sum, fragments, at, other, k0, from);
  }

  __device__ __forceinline__ void run(T (&sum)[TM][TN]) const {
    const int steps = (depth + BK - 1) / BK;
    Sources from = sources();
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
      fetch_slot(shared + stage * SLOT, stage * BK, from);
      ptx::cp_async_commit();
    }
    ptx::cp_async_wait<STAGES - 2>();
    __syncthreads();

    const int a_offset = warp_row() + lane_m() * WIDTH;
    const int b_offset = BK * LD + warp_column() + lane_n() * WIDTH;
    Fragments fragments[2];
    read(fragments[0], shared + a_offset, shared + b_offset, 0);

    int slot = 0;
    for (int step = 0; step < steps; ++step) {
      Place at{shared + slot * SLOT + a_offset, shared + slot * SLOT + b_offset};
      T* const other = shared + (slot == 0 ? STAGES - 1 : slot - 1) * SLOT;
      multiply_slot(sum, fragments, at, other, (step + STAGES - 1) * BK, from);
      ptx::cp_async_commit();
#pragma unroll
      for (int k = 0; k < UNROLL - 1; ++k) {
        read(fragments[(k + 1) % 2], at.a, at.b, k + 1);
        multiply(sum, fragments[k % 2]);
      }
      ptx::cp_async_wait<STAGES - 2>();
      __syncthreads();
      // What is read after the last slot is not used, but has to be there.
      if (step + 1 < steps) slot = slot + 1 == STAGES ? 0 : slot + 1;
      read(fragments[0], shared + slot * SLOT + a_offset, shared + slot * SLOT + b_offset, 0);
      multiply(sum, fragments[1]);
    }
  }

  // The column pairs of a chunk change places on the way out (see above), where they are registers of 32 bits.
  static constexpr int SWAP = WIDTH == 4 ? 1 : 0;

  __device__ __forceinline__ static Chunk<T> swapped(const T* sums) {
    Chunk<T> out;
#pragma unroll
    for (int v = 0; v < WIDTH; ++v) out.value[v] = sums[v ^ SWAP];
    return out;
  }

  // Writes what lies in the matrix; c is where the block's tile begins. A warp passes one row of each lane at a
  // time through a corner of shared memory of its own.
  __device__ __forceinline__ void store(const T (&sum)[TM][TN], T* c, int ldc) const {
    constexpr int PITCH = WN + WIDTH;
    static_assert(THREADS / 32 * LANES_M * PITCH <= STAGES * SLOT, "the ring holds what the warps pass through");
    const bool aligned = chunks_aligned(c, ldc);
    const int lane = threadIdx.x % 32;
    T* const corner = shared + threadIdx.x / 32 * LANES_M * PITCH;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
      for (int j = 0; j < CHUNKS_N; ++j) {
        T* const place = corner + lane_m() * PITCH + (lane_n() + j * LANES_N) * WIDTH;
        *reinterpret_cast<Chunk<T>*>(place) = swapped(&sum[i][j * WIDTH]);
      }
      __syncwarp();
#pragma unroll
      for (int j = 0; j < CHUNKS_N; ++j) {
        const int place = lane + j * 32, line = place / (WN / WIDTH), chunk = place % (WN / WIDTH);
        const Chunk<T> in = *reinterpret_cast<const Chunk<T>*>(corner + line * PITCH + chunk * WIDTH);
        const int row = warp_row() + (line + i / WIDTH * LANES_M) * WIDTH + i % WIDTH;
        const int column = warp_column() + chunk * WIDTH;
        if (row >= rows) continue;
        T* const to = c + static_cast<size_t>(row) * ldc + column;
        if (aligned && column + WIDTH <= columns) {
          *reinterpret_cast<Chunk<T>*>(to) = swapped(in.value);
        } else {
#pragma unroll
          for (int v = 0; v < WIDTH; ++v) {
            if (column + v < columns) to[v] = in.value[v ^ SWAP];
          }
        }
      }
      __syncwarp();
    }
  }
};
