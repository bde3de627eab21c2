// Rung 12: few rows of A, with B streamed past them by TMA.
//
// Adds to rung 10: nobody who multiplies loads. A warp of its own keeps a ring of stages full, which costs no register
// and has as many bytes under way as the memory's latency wants; its first copies start before anything else. A strip
// of C's columns belongs to a cluster of blocks that take turns along K; their sums meet in shared memory, each
// block's share of the elements in its own, so nothing goes through global memory, and the bytes that have come say
// when all are there. With 16-bit types tensor cores multiply: from 8 rows on, conversions and multiply-adds of
// threads would take longer than the memory.
//
// B is copied under a policy that makes it the first to leave the second-level cache. Nobody reads it again, and what
// lies there already may have to be written back before its place is free: with a cache full of written lines a
// product of one row takes 21 µs with the policy and 24 without.
//
// On an H200 with a cold second-level cache, N = K = 4096 (the better of cuBLAS and cuBLASLt): float32 20.7 µs at one
// row (21.6), 22.4 at 16 (45.6); bfloat16 13.1 at 8 rows (15.9), 13.4 at 16 (16.1). A kernel that only reads B takes
// 20.4 and 12.1 µs there.
//
// All sums are added in a fixed order: results are the same to the last bit in every launch.
//
// A strip is PANELS panels of 128 bytes of a row of B; a stage of the ring has BK rows of it, panel by panel, and
// the part of A that goes with them, also in panels of 128 bytes. A warp has a panel, and every DOWNth of a stage's
// units of k. Without tensor cores 8 lanes stand side by side along the panel's row with 16 bytes each, and the 4
// groups of them take different runs of 16 bytes along k: each load of A brings several steps of k, and no load
// meets another in a bank.
#include "../common/cluster.cuh"
#include "../common/hopper.cuh"
#include "../common/ptx.cuh"
#include "element.cuh"
#include "vector.cuh"

namespace streamed_gemv {

constexpr int PANEL_BYTES = 128, PRODUCER_THREADS = 32;
// Barriers of the block among themselves, beside __syncthreads' number 0.
constexpr int INITIALISED = 1, CONSUMERS_MET = 2;

template <int THREADS>
__device__ __forceinline__ void block_arrive(int barrier) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
}

template <int THREADS>
__device__ __forceinline__ void block_sync(int barrier) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
}

template <typename Word, typename T, int WIDTH>
__device__ __forceinline__ Word bits(const Vector<T, WIDTH>& run) {
  static_assert(sizeof(Word) == sizeof(run), "all of the run");
  return *reinterpret_cast<const Word*>(&run);
}

// The sums of a warp over its panel, by multiply-adds: each lane has a run of 16 bytes of every row.
template <typename T, int ROWS, bool TENSOR_CORES>
struct Sums {
  static constexpr int WIDTH = 16 / sizeof(T), GROUPS = 4, STEP = GROUPS * WIDTH, UNROLL = ROWS < 16 ? 4 : 2;
  using Run = Vector<T, WIDTH>;

  T sum[ROWS][WIDTH];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
#pragma unroll
      for (int v = 0; v < WIDTH; ++v) sum[row][v] = T{};
    }
  }

  // Adds steps k … k + STEP - 1 of a stage.
  __device__ __forceinline__ void add(const unsigned char* a, const unsigned char* b, int k) {
    constexpr int A_PANEL = PANEL_BYTES / static_cast<int>(sizeof(T));
    const int lane = threadIdx.x % 32, own = k + lane / 8 * WIDTH;
    Run b_run[WIDTH];
#pragma unroll
    for (int v = 0; v < WIDTH; ++v) {
      b_run[v] = *reinterpret_cast<const Run*>(b + (own + v) * PANEL_BYTES + lane % 8 * 16);
    }
    const unsigned char* const a_column =
        a + k / A_PANEL * (ROWS * PANEL_BYTES) + (k % A_PANEL + lane / 8 * WIDTH) * sizeof(T);
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
      const Run a_run = *reinterpret_cast<const Run*>(a_column + row * PANEL_BYTES);
#pragma unroll
      for (int u = 0; u < WIDTH; ++u) {
#pragma unroll
        for (int v = 0; v < WIDTH; ++v) sum[row][v] += a_run.value[u] * b_run[u].value[v];
      }
    }
  }

  // A word that is known only when all loads have brought what they were for.
  __device__ __forceinline__ unsigned witness() const {
    unsigned words = 0;
#pragma unroll
    for (int row = 0; row < ROWS; ++row) words |= *reinterpret_cast<const unsigned*>(&sum[row][0]);
    return words;
  }

  // Adds what the lanes that differ in MASK have of the first LIVE rows. Where there are several, each of the two
  // keeps half of them.
  template <int MASK, int LIVE>
  __device__ __forceinline__ void fold() {
    const bool upper = threadIdx.x & MASK;
#pragma unroll
    for (int row = 0; row < (LIVE + 1) / 2; ++row) {
#pragma unroll
      for (int v = 0; v < WIDTH; ++v) {
        const T other = sum[row + LIVE / 2][v];
        const T kept = upper ? other : sum[row][v], given = upper ? sum[row][v] : other;
        sum[row][v] = kept + __shfl_xor_sync(0xffffffffu, given, MASK);
      }
    }
  }

  // Adds up the groups of lanes and hands each run of the panel to put(row, column, run) in one of them.
  template <typename Put>
  __device__ __forceinline__ void hand_over(const Put& put) {
    constexpr int HALF = (ROWS + 1) / 2, QUARTER = (HALF + 1) / 2;
    fold<16, ROWS>();
    fold<8, HALF>();
    const int lane = threadIdx.x % 32, upper = lane / 16, odd = lane / 8 % 2;
    if ((ROWS == 1 && upper) || (HALF == 1 && odd)) return;
#pragma unroll
    for (int row = 0; row < QUARTER; ++row) {
      Run run;
#pragma unroll
      for (int v = 0; v < WIDTH; ++v) run.value[v] = sum[row][v];
      put(upper * HALF + odd * QUARTER + row, lane % 8 * WIDTH, bits<uint4>(run));
    }
  }
};

template <typename T>
struct Product;

#ifdef __CUDA_FP16_TYPES_EXIST__
template <>
struct Product<__half> {
  __device__ __forceinline__ static void add(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    ptx::mma_m16n8k16_f16(sum, a, b, sum);
  }
};
#endif
#ifdef __CUDA_BF16_TYPES_EXIST__
template <>
struct Product<__nv_bfloat16> {
  __device__ __forceinline__ static void add(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    ptx::mma_m16n8k16_bf16(sum, a, b, sum);
  }
};
#endif

// The same on tensor cores. TMA has put unit u of 16 bytes of row r to u ^ r % 8, so that the eight rows of a
// matrix that ldmatrix reads lie in different banks. With 8 rows the lower half of a fragment is zero.
template <typename T, int ROWS>
struct Sums<T, ROWS, true> {
  static constexpr int STEP = 16, UNROLL = 4, TILES = (ROWS + 15) / 16, COLUMN_TILES = PANEL_BYTES / 16;

  float sum[TILES][COLUMN_TILES][4];
  unsigned loaded;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < TILES * COLUMN_TILES * 4; ++i) (&sum[0][0][0])[i] = 0.0f;
    loaded = 0;
  }

  __device__ __forceinline__ unsigned witness() const { return loaded; }

  __device__ __forceinline__ void add(const unsigned char* a, const unsigned char* b, int k) {
    const int row = threadIdx.x % 8, matrix = threadIdx.x % 32 / 8;
    a += k / 64 * (ROWS * PANEL_BYTES);
    unsigned a_words[TILES][4];
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      if (ROWS == 8) {
        unsigned upper[2];
        ptx::ldmatrix_x2(upper, a + row * PANEL_BYTES + ((k % 64 / 8 + matrix % 2) ^ row) * 16);
        a_words[tile][0] = upper[0], a_words[tile][2] = upper[1];
        a_words[tile][1] = a_words[tile][3] = 0;
      } else {
        ptx::ldmatrix_x4(a_words[tile], a + (tile * 16 + matrix % 2 * 8 + row) * PANEL_BYTES +
                                            ((k % 64 / 8 + matrix / 2) ^ row) * 16);
      }
      loaded |= a_words[tile][0];
    }
    b += (k + matrix % 2 * 8 + row) * PANEL_BYTES;
#pragma unroll
    for (int pair = 0; pair < COLUMN_TILES / 2; ++pair) {
      unsigned b_words[4];
      ptx::ldmatrix_x4_trans(b_words, b + ((pair * 2 + matrix / 2) ^ row) * 16);
      loaded |= b_words[0];
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) {
        Product<T>::add(sum[tile][pair * 2], a_words[tile], {b_words[0], b_words[1]});
        Product<T>::add(sum[tile][pair * 2 + 1], a_words[tile], {b_words[2], b_words[3]});
      }
    }
  }

  template <typename Put>
  __device__ __forceinline__ void hand_over(const Put& put) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < ROWS / 8; ++half) {
#pragma unroll
      for (int tile = 0; tile < COLUMN_TILES; ++tile) {
        const float* const two = &sum[half / 2][tile][half % 2 * 2];
        put(half * 8 + lane / 4, tile * 8 + lane % 4 * 2, make_uint2(__float_as_uint(two[0]), __float_as_uint(two[1])));
      }
    }
  }
};

}  // namespace streamed_gemv

template <typename T, int ROWS, int PANELS, int BK, int DOWN, int STAGES, int CLUSTER, int BLOCKS>
__global__ void __launch_bounds__(PANELS* DOWN * 32 + 32, BLOCKS)
    gemm_streamed_gemv(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, int M, int N, int K,
                       int lda, int ldb, int ldc, const __grid_constant__ hopper::TensorMap a_map,
                       const __grid_constant__ hopper::TensorMap b_map) {
  using namespace streamed_gemv;
  using Sum = Accumulator<T>;
  using Partial = Sums<T, ROWS, sizeof(T) == 2>;
  constexpr int PANEL = PANEL_BYTES / static_cast<int>(sizeof(T)), BN = PANELS * PANEL;
  constexpr int WARPS = PANELS * DOWN, CONSUMERS = WARPS * 32, THREADS = CONSUMERS + PRODUCER_THREADS;
  constexpr int B_BYTES = BK * PANELS * PANEL_BYTES, A_BYTES = BK * ROWS * static_cast<int>(sizeof(T));
  constexpr int STAGE_BYTES = B_BYTES + A_BYTES;
  // Of the strip's elements each block of the cluster has a share to add up, a part from each of these warps.
  constexpr int SHARE = ROWS * BN / CLUSTER, PARTS = CLUSTER * DOWN;
  constexpr int WIDTH = 16 / static_cast<int>(sizeof(Sum));
  static_assert(BK % PANEL == 0 && BK % (DOWN * Partial::STEP) == 0, "whole panels of A, whole units for each warp");
  static_assert(ROWS * BN % (CLUSTER * WIDTH) == 0, "whole runs for each block");
  static_assert(sizeof(T) != 2 || ROWS % 8 == 0, "fragments have 8 or 16 rows");

  extern __shared__ unsigned char memory[];
  unsigned char* const ring = memory + (-hopper::shared_address(memory) & 1023);
  Sum* const parts = reinterpret_cast<Sum*>(ring + STAGES * STAGE_BYTES);
  const unsigned ring_at = hopper::shared_address(ring), parts_at = ring_at + STAGES * STAGE_BYTES;
  const unsigned arrived = parts_at + PARTS * SHARE * sizeof(Sum), released = arrived + STAGES * 8;
  const unsigned gathered = released + STAGES * 8, emptied = gathered + 8;

  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const int rank = blockIdx.x % CLUSTER, clusters = gridDim.x / CLUSTER;
  const int groups = (M + ROWS - 1) / ROWS, tiles = (N + BN - 1) / BN * groups, blocks_k = (K + BK - 1) / BK;
  int stage = 0;
  unsigned phase = 0;
  const auto advance = [&] {
    if (++stage == STAGES) stage = 0, phase ^= 1;
  };

  if (warp == WARPS) {
    if (lane == 0) {
      hopper::prefetch_map(&b_map);
      hopper::prefetch_map(&a_map);
      for (int i = 0; i < STAGES; ++i) {
        hopper::mbarrier_init(arrived + i * 8, 1);
        hopper::mbarrier_init(released + i * 8, WARPS);
      }
      hopper::mbarrier_init(gathered, 1);
      hopper::mbarrier_init(emptied, CLUSTER);
      hopper::mbarrier_init_fence();
    }
    __syncwarp();
    block_arrive<THREADS>(INITIALISED);
    if (CLUSTER > 1) hopper::cluster_arrive_relaxed();
    if (lane == 0) {
      const unsigned long long once = hopper::evict_first_policy();
      for (int tile = blockIdx.x / CLUSTER; tile < tiles; tile += clusters) {
        const int row = tile % groups * ROWS, column = tile / groups * BN;
        for (int block = rank; block < blocks_k; block += CLUSTER) {
          const unsigned full = arrived + stage * 8, b = ring_at + stage * STAGE_BYTES, a = b + B_BYTES;
          hopper::mbarrier_wait(released + stage * 8, phase ^ 1);
          hopper::mbarrier_arrive_expect(full, STAGE_BYTES);
#pragma unroll
          for (int panel = 0; panel < PANELS; ++panel) {
            hopper::tma_load_under(b + panel * BK * PANEL_BYTES, &b_map, full, column + panel * PANEL, block * BK,
                                   once);
          }
#pragma unroll
          for (int panel = 0; panel < BK / PANEL; ++panel) {
            hopper::tma_load(a + panel * ROWS * PANEL_BYTES, &a_map, full, block * BK + panel * PANEL, row);
          }
          advance();
        }
      }
    }
    __syncwarp();
    if (CLUSTER > 1) hopper::cluster_wait();
    return;
  }

  if (CLUSTER > 1) hopper::cluster_arrive_relaxed();
  block_sync<THREADS>(INITIALISED);
  const int panel = warp % PANELS, down = warp / PANELS;
  const unsigned nothing = ldb >> 31;
  const bool aligned = rows_aligned<Output<T>, WIDTH>(C, ldc);
  Partial partial;
  unsigned turn = 0;
  for (int tile = blockIdx.x / CLUSTER; tile < tiles; tile += clusters, turn ^= 1) {
    partial.clear();
    for (int block = rank; block < blocks_k; block += CLUSTER) {
      const unsigned char* const b = ring + stage * STAGE_BYTES;
      hopper::mbarrier_wait(arrived + stage * 8, phase);
      __syncwarp();
#pragma unroll Partial::UNROLL
      for (int k = 0; k < BK; k += DOWN * Partial::STEP) {
        partial.add(b + B_BYTES, b + panel * BK * PANEL_BYTES, k + down * Partial::STEP);
      }
      // The arrival depends on what was loaded. Left to itself it may come while loads are on their way (seen in the
      // machine code: LDSM, then SYNCS.ARRIVE, then HMMA), and the next copies into the stage overtake them: some
      // products were wrong where two blocks shared a multiprocessor.
      __syncwarp();
      if (lane == 0) hopper::mbarrier_arrive(released + stage * 8 + (partial.witness() & nothing));
      advance();
    }

    // All blocks' barriers are there, and their parts of the last tile are added up.
    if (tile < clusters) {
      if (CLUSTER > 1) hopper::cluster_wait();
    } else {
      hopper::mbarrier_wait_cluster(emptied, turn ^ 1);
    }
    __syncwarp();
    if (threadIdx.x == 0) hopper::mbarrier_arrive_expect(gathered, PARTS * SHARE * sizeof(Sum));
    int own_column = panel * PANEL;
    asm volatile("" : "+r"(own_column));  // or the compiler has all places ahead of the loop, a register each
    partial.hand_over([&](int row, int column, const auto& run) {
      const int element = row * BN + own_column + column, owner = element / SHARE;
      const unsigned place = parts_at + ((rank * DOWN + down) * SHARE + element % SHARE) * sizeof(Sum);
      hopper::store_async(hopper::shared_address_in(place, owner), run, hopper::shared_address_in(gathered, owner));
    });
    hopper::mbarrier_wait_cluster(gathered, turn);
    __syncwarp();
    const int row0 = tile % groups * ROWS, column0 = tile / groups * BN;
    for (int i = threadIdx.x * WIDTH; i < SHARE; i += CONSUMERS * WIDTH) {
      Vector<Sum, WIDTH> total{};
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        const auto run = *reinterpret_cast<const Vector<Sum, WIDTH>*>(parts + part * SHARE + i);
#pragma unroll
        for (int v = 0; v < WIDTH; ++v) total.value[v] += run.value[v];
      }
      Vector<Output<T>, WIDTH> out;
#pragma unroll
      for (int v = 0; v < WIDTH; ++v) out.value[v] = narrow<T>(total.value[v]);
      const int element = rank * SHARE + i, row = row0 + element / BN;
      if (row >= M) continue;
      store_run<Output<T>, WIDTH>(C + static_cast<size_t>(row) * ldc, column0 + element % BN, N, aligned, out);
    }
    if (tile + clusters < tiles) {
      block_sync<CONSUMERS>(CONSUMERS_MET);
      if (threadIdx.x < CLUSTER) hopper::mbarrier_arrive_at(emptied, threadIdx.x);
    }
  }
}
