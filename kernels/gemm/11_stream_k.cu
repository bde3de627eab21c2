// Rung 11: every multiprocessor gets the same share of the work, whatever the shape and the alignment.
//
// Adds to rung 8:
//
//  - Small tiles at the same pace. Warps keep 64 × 64 elements each, which is what the main loop needs to keep the
//    multiply-adds busy; in a tile of 64 × 128 they share k instead of M and N: of each stage, WK warps take every
//    WK-th unit of four k. Their sums are added through shared memory, in the order of the warps, when a tile is done.
//  - Clusters. Where even small tiles are too few, PARTS blocks share the k of one and read each other's sums from
//    shared memory, which spares the way through a workspace.
//  - Stream-K (Osama et al. 2023, "Stream-K: work-centric parallel decomposition for dense matrix-matrix
//    multiplication on the GPU"). Work is counted in blocks of k of tiles, and each of the blocks that run gets an
//    equal run of them, which may begin and end within a tile. What it has of such a tile goes to a workspace; when
//    all blocks are through, they meet and all of them add up the parts, in the order of the blocks: results are the
//    same to the last bit in every launch. STREAM says how much is dealt like that: 0 nothing; 1 all, in as many parts a
//    tile as the device can run; 2 the tiles that are left over when every multiprocessor has had its whole ones;
//    3 these and one more round of whole ones; 4 all.
//  - Rows that TMA cannot read, because they do not begin a multiple of 16 bytes apart, are first copied to where
//    they do. Blocks do that together and meet once more.
//
// On an H200 with a cold second-level cache, as a ratio of the better of cuBLAS and cuBLASLt: 1.09 at 4096³ (55.8
// TFLOP/s) and at 8192³, 1.22 at 1024³, 1.28 at 1536³, 1.07 at 128×4096×4096, 1.46 at 64×64×65536; with rows that
// are copied 1.08 at 1025³ and 1.12 at 4097³, but 0.95 at 2047³.
#include "../common/grid.cuh"
#include "ffma_ring.cuh"

namespace stream_k {

// Blocks of k first … last - 1 of a tile.
struct Segment {
  int tile, first, last;
};

// What a block has to do: a run of the units of the tiles that are dealt out, then whole tiles.
struct Walk {
  int unit, end, tile, tiles, blocks_k;

  __device__ __forceinline__ Walk(int streamed, int tiles, int blocks_k)
      : unit(begin_of_run(blockIdx.x, streamed * blocks_k)),
        end(begin_of_run(blockIdx.x + 1, streamed * blocks_k)),
        tile(streamed + blockIdx.x),
        tiles(tiles),
        blocks_k(blocks_k) {}

  static __device__ __forceinline__ int begin_of_run(unsigned block, int units) {
    return static_cast<int>(static_cast<unsigned long long>(block) * units / gridDim.x);
  }

  __device__ __forceinline__ bool next(Segment& segment) {
    if (unit < end) {
      segment.tile = unit / blocks_k;
      const int start = segment.tile * blocks_k;
      segment.first = unit - start;
      segment.last = min(blocks_k, end - start);
      unit = start + segment.last;
      return true;
    }
    segment = {tile, 0, blocks_k};
    tile += gridDim.x;
    return segment.tile < tiles;
  }
};

// Tiles that are dealt out in runs of units; where there are PARTS blocks for each tile, all.
template <int STREAM, int PARTS>
__device__ __forceinline__ int streamed_tiles(int tiles) {
  const int blocks = gridDim.x, rest = tiles % blocks;
  if (PARTS > 1) return tiles;
  if (STREAM == 0) return 0;
  if (STREAM == 1 || STREAM == 4 || tiles < blocks) return tiles;
  return STREAM == 3 && rest > 0 ? rest + blocks : rest;
}

// Where a tile's elements go, and how many rows and columns of it there are.
struct Target {
  float* to;
  size_t pitch;
  int rows, columns;
  bool whole;

  __device__ __forceinline__ void store(int row, int column, const float4& four) const {
    if (row < rows) ffma_ring::store_four(to + row * pitch + column, four, columns - column, whole);
  }
};

// Of the threads that multiply.
template <int THREADS>
__device__ __forceinline__ void consumers_sync() {
  asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

// "Data Movement and Conversion Instructions: mapa", "ld": four elements from the shared memory of block `rank` of the
// cluster, at the place that `address` is in this block's.
__device__ __forceinline__ float4 load_from(unsigned address, unsigned rank) {
  float4 value;
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n}"
      : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
      : "r"(address), "r"(rank)
      : "memory");
  return value;
}

// The warp that fills the ring says that its barriers may be used, and goes on; those that multiply wait for it.
template <int THREADS, bool WAIT>
__device__ __forceinline__ void ring_is_ready() {
  __syncwarp();
  if (WAIT) {
    asm volatile("bar.sync 2, %0;" ::"n"(THREADS + 32) : "memory");
  } else {
    asm volatile("bar.arrive 2, %0;" ::"n"(THREADS + 32) : "memory");
  }
}

__device__ __forceinline__ void add(float4& sum, const float4& other) {
  sum.x += other.x;
  sum.y += other.y;
  sum.z += other.z;
  sum.w += other.w;
}

// Adds up the parts of the tiles that several blocks have had, as many threads at a time as there are on the device.
template <int BM, int BN, int WARPS>
struct Gathering {
  const float* partial;
  float4* exchange;  // in shared memory, one a thread
  int streamed, blocks_k, warp, lane;

  // The block to whose run a unit belongs.
  __device__ __forceinline__ int owner(int unit) const {
    return static_cast<int>(((unit + 1ull) * gridDim.x - 1) / static_cast<unsigned>(streamed * blocks_k));
  }

  // Each warp takes PIECE times 32 chunks of four elements at once. Where there are fewer of these than warps, several
  // warps share the parts of the same ones. `store` takes the tile, and row and column in it, of each chunk.
  template <int PIECE, typename Store>
  __device__ __forceinline__ void run(const Store& store) const {
    constexpr int CHUNKS = BM * BN / 4, PIECES = CHUNKS / (32 * PIECE);
    static_assert(CHUNKS % (32 * PIECE) == 0, "pieces make up a tile");
    const int pieces = streamed * PIECES, blocks = gridDim.x;
    int sharing = 1;
    while (WARPS % (2 * sharing) == 0 && 1ll * pieces * sharing < blocks * WARPS) sharing *= 2;
    const int at_once = WARPS / sharing, share = warp % sharing;
    for (int first = blockIdx.x * at_once; first < pieces; first += blocks * at_once) {
      const int piece = first + warp / sharing;
      const int tile = piece / PIECES, chunk = piece % PIECES * (32 * PIECE) + lane;
      const int first_owner = owner(tile * blocks_k);
      const int parts = owner(tile * blocks_k + blocks_k - 1) - first_owner + 1;
      const bool mine = piece < pieces && parts > 1;
      float4 total[PIECE];
#pragma unroll
      for (int i = 0; i < PIECE; ++i) total[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (mine) {
        const float4* const from = reinterpret_cast<const float4*>(partial) + chunk;
#pragma unroll 4
        for (int p = parts * share / sharing; p < parts * (share + 1) / sharing; ++p) {
          const size_t slot = 2 * (first_owner + p) + (p == 0);
#pragma unroll
          for (int i = 0; i < PIECE; ++i) add(total[i], __ldcg(from + slot * CHUNKS + i * 32));
        }
      }
      if (sharing > 1) {
#pragma unroll
        for (int i = 0; i < PIECE; ++i) {
          exchange[warp * 32 + lane] = total[i];
          consumers_sync<WARPS * 32>();
          if (share == 0)
            for (int other = 1; other < sharing; ++other) add(total[i], exchange[(warp + other) * 32 + lane]);
          consumers_sync<WARPS * 32>();
        }
      }
      if (mine && share == 0) {
#pragma unroll
        for (int i = 0; i < PIECE; ++i)
          store(tile, (chunk + i * 32) / (BN / 4), (chunk + i * 32) % (BN / 4) * 4, total[i]);
      }
    }
  }
};

}  // namespace stream_k

template <int BM, int BN, int BK, int WM, int WN, int WK, int STAGES, int GROUP, int STREAM, int PARTS>
__global__ void __launch_bounds__((BM / WM) * (BN / WN) * WK * 32 + 128, 1)
    gemm_stream_k(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, float* a_copy,
                  float* b_copy, float* partial, unsigned* met, int M, int N, int K, int lda, int ldb, int ldc,
                  const __grid_constant__ hopper::TensorMap a_map, const __grid_constant__ hopper::TensorMap b_map) {
  using namespace ffma_ring;
  using namespace stream_k;
  using TileRing = Ring<BM, BN, BK, STAGES>;
  constexpr int PLACES = (BM / WM) * (BN / WN), WARPS = PLACES * WK, THREADS = WARPS * 32;
  constexpr int TM = WM / LANES_M, TN = WN / LANES_N, GROUPS = TN / 4, CHUNKS = BM * BN / 4;
  // Sums of warps that share k are added through shared memory. Those of more than 64 rows take the same way, because
  // the addresses that it takes to store them do not fit into the registers beside them.
  constexpr bool EXCHANGE = WK > 1 || WM > 64;
  static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles cover the block tile");
  static_assert(WM % LANES_M == 0 && WN % (4 * LANES_N) == 0, "lanes cover the warp tile, four columns each");
  static_assert(BK % (4 * WK) == 0, "warps that share k have as many units each");
  static_assert(PARTS == 1 || STREAM == 0, "a tile is divided among a cluster, or work among all blocks");
  static_assert(PARTS == 1 || BM * BN <= STAGES * (BM + BN) * BK, "a tile fits into the ring");

  extern __shared__ unsigned char memory[];
  unsigned char* const start = memory + (-hopper::shared_address(memory) & 1023u);
  TileRing ring(hopper::shared_address(start));
  // Behind the ring: four columns of each thread's sums.
  float4* const exchange = reinterpret_cast<float4*>(start + STAGES * (TileRing::A_BYTES + TileRing::B_BYTES + 16));

  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (lda % 4 != 0 || ldb % 4 != 0) {
    if (lda % 4 != 0) grid::copy_padded(a_copy, (K + 3) / 4 * 4, A, lda, M, K);
    if (ldb % 4 != 0) grid::copy_padded(b_copy, (N + 3) / 4 * 4, B, ldb, K, N);
    grid::sync(met);
  }

  const int tiles_m = (M + BM - 1) / BM, tiles_n = (N + BN - 1) / BN, tiles = tiles_m * tiles_n;
  const int blocks_k = (K + BK - 1) / BK, streamed = streamed_tiles<STREAM, PARTS>(tiles);
  Segment segment;
  int row, column;

  if (warp >= WARPS) {
    hopper::setmaxnreg_decrease<PRODUCER_REGISTERS>();
    if (warp > WARPS) return;
    if (lane == 0) {
      hopper::prefetch_map(&a_map);
      hopper::prefetch_map(&b_map);
      ring.initialise(WARPS);
    }
    ring_is_ready<THREADS, false>();
    if (lane == 0) {
      Walk walk(streamed, tiles, blocks_k);
      while (walk.next(segment)) {
        locate<BM, BN, GROUP>(segment.tile, tiles_m, tiles_n, row, column);
#pragma unroll 1
        for (int block = segment.first; block < segment.last; ++block)
          ring.fill(&a_map, &b_map, row, column, block * BK);
      }
    }
    return;
  }
  hopper::setmaxnreg_increase<CONSUMER_REGISTERS<THREADS>>();

  ring_is_ready<THREADS, true>();

  const int place = warp % PLACES, part = warp / PLACES;
  const int row_in_tile = place / (BN / WN) * WM + lane / LANES_N;
  const int column_in_tile = place % (BN / WN) * WN + lane % LANES_N * 4;
  const float one = __int_as_float(0x3f800000 | K >> 31);

  Walk walk(streamed, tiles, blocks_k);
  while (walk.next(segment)) {
    float sum[TM][TN];
#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
      for (int j = 0; j < TN; ++j) sum[i][j] = 0.0f;
    }
    ring.template multiply_stages<WK>(sum, segment.last - segment.first, row_in_tile, column_in_tile, part, K);

    locate<BM, BN, GROUP>(segment.tile, tiles_m, tiles_n, row, column);
    const Target of_c{C + static_cast<size_t>(row) * ldc + column, static_cast<size_t>(ldc), M - row, N - column,
                      ldc % 4 == 0};
    Target target = of_c;
    if (PARTS > 1) {
      // The ring is done with, once all warps are.
      consumers_sync<THREADS>();
      target = {reinterpret_cast<float*>(start), BN, BM, BN, true};
    } else if (segment.last - segment.first < blocks_k) {
      // A run may leave a tile to the next block and have another from the one before.
      const size_t slot = 2 * blockIdx.x + (segment.first == 0);
      target = {partial + slot * (BM * BN), BN, BM, BN, true};
    }
    const auto four = [&](int i, int j) {
      return make_float4(sum[i][4 * j] * one, sum[i][4 * j + 1] * one, sum[i][4 * j + 2] * one,
                         sum[i][4 * j + 3] * one);
    };
    if constexpr (!EXCHANGE) {
#pragma unroll
      for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < GROUPS; ++j)
          target.store(row_in_tile + i * LANES_M, column_in_tile + j * LANES_N * 4, four(i, j));
      }
    } else {
      float4* const of_place = exchange + place * (WK * TM * 32) + lane;
#pragma unroll
      for (int j = 0; j < GROUPS; ++j) {
#pragma unroll
        for (int i = 0; i < TM; ++i) of_place[(part * TM + i) * 32] = four(i, j);
        consumers_sync<THREADS>();
#pragma unroll
        for (int i = part; i < TM; i += WK) {
          float4 total = of_place[i * 32];
#pragma unroll
          for (int other = 1; other < WK; ++other) add(total, of_place[(other * TM + i) * 32]);
          target.store(row_in_tile + i * LANES_M, column_in_tile + j * LANES_N * 4, total);
        }
        consumers_sync<THREADS>();
      }
    }
    if (PARTS > 1) {
      hopper::cluster_sync();
      const int rank = blockIdx.x % PARTS;
#pragma unroll 2
      for (int chunk = CHUNKS * rank / PARTS + threadIdx.x; chunk < CHUNKS * (rank + 1) / PARTS; chunk += THREADS) {
        float4 total = load_from(ring.a_tiles + chunk * 16, 0);
#pragma unroll
        for (unsigned other = 1; other < PARTS; ++other) add(total, load_from(ring.a_tiles + chunk * 16, other));
        of_c.store(chunk / (BN / 4), chunk % (BN / 4) * 4, total);
      }
      // Others may still read what lies here.
      hopper::cluster_sync();
    }
  }

  if (STREAM == 0 || streamed == 0) return;
  consumers_sync<THREADS>();
  if (threadIdx.x == 0) grid::meet(met);
  consumers_sync<THREADS>();

  const Gathering<BM, BN, WARPS> gathering{partial, reinterpret_cast<float4*>(start), streamed, blocks_k, warp, lane};
  const auto store = [&](int tile, int row_of_tile, int column_of_tile, const float4& total) {
    locate<BM, BN, GROUP>(tile, tiles_m, tiles_n, row, column);
    const Target target{C + static_cast<size_t>(row) * ldc + column, static_cast<size_t>(ldc), M - row, N - column,
                        ldc % 4 == 0};
    target.store(row_of_tile, column_of_tile, total);
  };
  // Where there is less than a chunk a thread, each has one, and several may share its parts.
  if (streamed * (BM * BN / 4LL) > gridDim.x * THREADS) {
    gathering.template run<4>(store);
  } else {
    gathering.template run<1>(store);
  }
}
