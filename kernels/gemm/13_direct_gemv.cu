// Rung 13: few rows of A, and B from memory straight into the registers that multiply it.
//
// Takes away from rung 12 what stands between a launch and its first byte, and between its last byte and its end. A
// product of one row and 4096 × 4096 elements lasts some 12 µs, of which the bytes alone need 8. The first thing that
// every thread does is to load: no barrier is made ready, no tensor map is fetched, nothing goes through shared
// memory. What is under way lies in registers: BUFFERS batches of a warp, WIDTH × 512 bytes each, of which all but one
// are under way while that is multiplied. No thread waits for another before the sums meet, once, at the end.
//
// An order of k is free as long as both factors have the same, and so is an order of columns as long as the sums
// leave by it. They are chosen here such that what a lane loads is what it multiplies: with g = lane / 4 and
// t = lane % 4 it has rows 8t … 8t + 7 of 32 and the WIDTH columns from WIDTH·g on, so that a load of the warp is four
// rows of 64 or 128 bytes, and of A it has the 16 bytes that go with its rows. mma.sync has B's columns as its 16 rows
// and A's rows as its 8 columns, so that 8 rows of A waste nothing.
//
// A strip of C is ACROSS × 8·WIDTH columns; narrow ones are enough for all multiprocessors without a cluster. Along K
// it belongs to a cluster of blocks and in each to DOWN warps: they take units of 32 rows of B in turns, or (ORDER 1)
// each has a run of them, so that all pages of B are asked for at once and no translation of an address is waited for
// later. Each block adds up its share of the rows of C: all others write their parts into its shared memory and the
// bytes that have come say when all are there, as in rung 12; only rows that C has are sent.
//
// HINT 1 loads B under a policy that makes it the first to leave the second-level cache, for rung 12's reasons.
//
// All sums are added in a fixed order: results are the same to the last bit in every launch.
#ifndef __SWEEPER_EMULATOR__
#include "../common/cluster.cuh"
#endif
#include "element.cuh"
#include "tensor/mma_class.cuh"
#include "vector.cuh"

namespace direct_gemv {

constexpr int UNIT_K = 32, LANE_K = 8;

template <int HINT>
__device__ __forceinline__ unsigned long long policy() {
  unsigned long long made = 0;
#ifndef __SWEEPER_EMULATOR__
  if (HINT == 1) return hopper::evict_first_policy();
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(made));
#endif
  return made;
}

// What is read once; zeros where it is not `wanted`.
template <int WIDTH>
struct Run;

template <>
struct Run<4> {
  unsigned words[2];

  __device__ __forceinline__ void load(const void* from, bool wanted, unsigned long long policy) {
#ifdef __SWEEPER_EMULATOR__
    const uint2 run = wanted ? *static_cast<const uint2*>(from) : make_uint2(0, 0);
    words[0] = run.x, words[1] = run.y;
#else
    asm volatile(
        "{\n.reg .pred wanted;\nsetp.ne.s32 wanted, %4, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\n"
        "@wanted ld.global.nc.L1::no_allocate.L2::cache_hint.v2.b32 {%0, %1}, [%2], %3;\n}"
        : "=&r"(words[0]), "=&r"(words[1])
        : "l"(from), "l"(policy), "r"(static_cast<int>(wanted)));
#endif
  }
};

template <>
struct Run<8> {
  unsigned words[4];

  __device__ __forceinline__ void load(const void* from, bool wanted, unsigned long long policy) {
#ifdef __SWEEPER_EMULATOR__
    const uint4 run = wanted ? *static_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
    words[0] = run.x, words[1] = run.y, words[2] = run.z, words[3] = run.w;
#else
    asm volatile(
        "{\n.reg .pred wanted;\nsetp.ne.s32 wanted, %6, 0;\n"
        "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
        "@wanted ld.global.nc.L1::no_allocate.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;\n}"
        : "=&r"(words[0]), "=&r"(words[1]), "=&r"(words[2]), "=&r"(words[3])
        : "l"(from), "l"(policy), "r"(static_cast<int>(wanted)));
#endif
  }
};

__device__ __forceinline__ unsigned word(const uint4& run, int i) {
  return i == 0 ? run.x : i == 1 ? run.y : i == 2 ? run.z : run.w;
}

// What a lane has of 32 rows of B and of the part of A that goes with them.
template <int TILES, int WIDTH>
struct Batch {
  Run<WIDTH> b[LANE_K];
  uint4 a[TILES];
};

// sum[tile][j] has columns 2j (elements 0 and 1) and 2j + 1 (2 and 3) of the lane's own; of each pair the first is
// row 2t of the tile's eight rows of A, the second row 2t + 1.
template <typename T, int TILES, int WIDTH>
__device__ __forceinline__ void multiply(float (&sum)[TILES][WIDTH / 2][4], const Batch<TILES, WIDTH>& batch) {
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const Run<WIDTH>* const row = batch.b + step * 4;
#pragma unroll
    for (int j = 0; j < WIDTH / 2; ++j) {
      const unsigned columns[4] = {
          __byte_perm(row[0].words[j], row[1].words[j], 0x5410), __byte_perm(row[0].words[j], row[1].words[j], 0x7632),
          __byte_perm(row[2].words[j], row[3].words[j], 0x5410), __byte_perm(row[2].words[j], row[3].words[j], 0x7632)};
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) {
        const unsigned rows[2] = {word(batch.a[tile], step * 2), word(batch.a[tile], step * 2 + 1)};
        Multiplier<T>::product(sum[tile][j], columns, rows);
      }
    }
  }
}

// Runs of four sums lie in a row in the order of their number ^ spread(row): the lanes that write together meet no
// bank twice.
template <int WIDTH>
__device__ __forceinline__ int spread(int row) {
  return WIDTH == 4 ? row / 2 % 4 * 2 : row / 2 % 2 | row / 4 % 2 * 4;
}

}  // namespace direct_gemv

template <typename T, int ROWS, int WIDTH, int ACROSS, int DOWN, int BUFFERS, int CLUSTER, int ORDER, int HINT>
__global__ void __launch_bounds__(ACROSS* DOWN * 32)
    gemm_direct_gemv(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, int M, int N, int K,
                     int lda, int ldb, int ldc) {
  using namespace direct_gemv;
  constexpr int PANEL = 8 * WIDTH, RUNS = WIDTH / 4, BN = ACROSS * PANEL, UNITS = BN / 4, TILES = ROWS / 8;
  constexpr int PARTS = CLUSTER * DOWN, SHARE = ROWS / CLUSTER, THREADS = ACROSS * DOWN * 32;
  static_assert(sizeof(T) == 2 && ROWS % 8 == 0 && ROWS % CLUSTER == 0, "fragments of 16-bit types, whole rows");

  extern __shared__ float4 parts[];

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, across = warp % ACROSS, down = warp / ACROSS;
  const int rank = blockIdx.x % CLUSTER, row0 = blockIdx.y * ROWS, column0 = blockIdx.x / CLUSTER * BN;
  const int column = column0 + across * PANEL + lane / 4 * WIDTH, lane_k = lane % 4 * LANE_K;
  const unsigned long long hint = policy<HINT>();

  const int part = rank * DOWN + down, units = (K + UNIT_K - 1) / UNIT_K, each = (units + PARTS - 1) / PARTS;
  const int first = ORDER == 0 ? part : part * each, last = ORDER == 0 ? units : min(first + each, units);
  constexpr int STEP = ORDER == 0 ? PARTS : 1, STEP_K = STEP * UNIT_K;
  const int end_k = min(last * UNIT_K, K);
  int k = first * UNIT_K + lane_k;
  const T* b_at = B + static_cast<size_t>(k) * ldb + column;
  const T* a_at[TILES];
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
    // Rows that A has not are others', and the products with them are not used.
    a_at[tile] = A + static_cast<size_t>(min(row0 + tile * 8 + lane / 4, M - 1)) * lda + k;
  }
  const auto fetch = [&](Batch<TILES, WIDTH>& batch) {
    const bool inside = k < end_k;
#pragma unroll
    for (int i = 0; i < LANE_K; ++i) {
      batch.b[i].load(b_at + static_cast<size_t>(i) * ldb, inside && column < N, hint);
    }
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      batch.a[tile] = inside ? *reinterpret_cast<const uint4*>(a_at[tile]) : make_uint4(0, 0, 0, 0);
      a_at[tile] += STEP_K;
    }
    k += STEP_K;
    b_at += static_cast<size_t>(STEP_K) * ldb;
  };

  Batch<TILES, WIDTH> batch[BUFFERS];
#pragma unroll
  for (int i = 0; i < BUFFERS; ++i) fetch(batch[i]);

#ifndef __SWEEPER_EMULATOR__
  const unsigned parts_at = hopper::shared_address(parts), gathered = parts_at + PARTS * SHARE * UNITS * 16;
  if (CLUSTER > 1) {
    if (threadIdx.x == 0) {
      hopper::mbarrier_init(gathered, 1);
      hopper::mbarrier_init_fence();
    }
    __syncwarp();
    hopper::cluster_arrive_relaxed();
  }
#endif

  float sum[TILES][WIDTH / 2][4] = {};
  for (int unit = first; unit < last;) {
#pragma unroll
    for (int i = 0; i < BUFFERS; ++i) {
      multiply<T, TILES, WIDTH>(sum, batch[i]);
      fetch(batch[i]);
      unit += STEP;
      // A branch, over which the compiler moves no loads. Without it all batches are waited for at once (seen in the
      // machine code), and nothing is under way meanwhile.
      if (unit >= last) break;
    }
  }

  // Rows that C has, in all and of this block's share.
  const int live = min(M - row0, ROWS), own = min(live - rank * SHARE, SHARE);
#ifndef __SWEEPER_EMULATOR__
  if (CLUSTER > 1) {
    hopper::cluster_wait();
    if (threadIdx.x == 0 && own > 0) hopper::mbarrier_arrive_expect(gathered, PARTS * own * UNITS * 16);
  }
#endif
  const int part_at = part * SHARE * UNITS, pair = lane % 4 * 2;
  const int own_unit = (across * (PANEL / 4) + lane / 4 * RUNS) ^ spread<WIDTH>(pair);
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
    for (int second = 0; second < 2; ++second) {
      const int row = tile * 8 + pair + second, owner = row / SHARE, at = part_at + row % SHARE * UNITS;
      if (row >= live) continue;
#pragma unroll
      for (int half = 0; half < RUNS; ++half) {
        const float(&one)[4] = sum[tile][half * 2], (&next)[4] = sum[tile][half * 2 + 1];
        const float4 run = make_float4(one[second], one[second + 2], next[second], next[second + 2]);
        const int run_at = at + (own_unit ^ half);
        if (CLUSTER == 1) {
          parts[run_at] = run;
          continue;
        }
#ifndef __SWEEPER_EMULATOR__
        const uint4 words = make_uint4(__float_as_uint(run.x), __float_as_uint(run.y), __float_as_uint(run.z),
                                       __float_as_uint(run.w));
        hopper::store_async(hopper::shared_address_in(parts_at + run_at * 16, owner), words,
                            hopper::shared_address_in(gathered, owner));
#endif
      }
    }
  }
  if (CLUSTER == 1) __syncthreads();
#ifndef __SWEEPER_EMULATOR__
  if (CLUSTER > 1) {
    if (own <= 0) return;
    hopper::mbarrier_wait_cluster(gathered, 0);
  }
#endif

  const bool aligned = rows_aligned<Output<T>, 4>(C, ldc);
#pragma unroll 1
  for (unsigned i = threadIdx.x; static_cast<int>(i) < own * UNITS; i += THREADS) {
    const int row = i / UNITS, unit = i % UNITS;
    const int run_at = row * UNITS + (unit ^ spread<WIDTH>(rank * SHARE + row));
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int other = 0; other < PARTS; ++other) {
      const float4 run = parts[other * SHARE * UNITS + run_at];
      total.x += run.x, total.y += run.y, total.z += run.z, total.w += run.w;
    }
    const Vector<Output<T>, 4> out{narrow<T>(total.x), narrow<T>(total.y), narrow<T>(total.z), narrow<T>(total.w)};
    store_run<Output<T>, 4>(C + static_cast<size_t>(row0 + rank * SHARE + row) * ldc, column0 + unit * 4, N, aligned,
                            out);
  }
}
