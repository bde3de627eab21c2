// Rungs 7 to 9 and 14: blocks that stay, clusters that share, stores behind the arithmetic, rows that TMA cannot read.
//
// Adds to rung 6, in the order of the sections below:
//
//  7  As many blocks as the device runs at once walk through the tiles of C. The producer fetches the next tile while
//     the last one is stored, and tiles that run at the same time are neighbours (tile_order.cuh), so that the
//     second-level cache gives most of what they read.
//  8  CLUSTER_M × CLUSTER_N blocks next to each other take tiles next to each other: those in a row need the same
//     of A, those in a column the same of B. Each fetches its share of it, and TMA writes it to all of them. The
//     cache is read 1 / CLUSTER_N and 1 / CLUSTER_M as often. A stage is free when the consumers of all have said so.
//  9  Results go through shared memory and from there by TMA, which needs whole lines of C and nobody's time: the
//     consumer goes on with the next tile (store.cuh). Rows of C that TMA cannot write go the longer way. With DEFER a
//     tile is only rounded, into half the registers, before the next one's first products are started, and leaves
//     beneath those, a piece at a step: the tensor cores wait for the rounding alone.
//
//     32 columns more or less than whole slices of 64 fit tiles to the device too: 5000² are 800 tiles of 128×256, six
//     waves and 8 tiles, but 920 of 128×224, which are not quite seven. B's last slice is fetched whole and half used.
// 14  TMA reads only rows that begin at multiples of 16 bytes. Where they do not, all blocks copy the operand to
//     rows that do, meet, and go on with the copy. That is read and written once, at the memory's pace, and is
//     worth it for all but the flattest products.
//
// On an H200 in bfloat16 with a cold second-level cache, beside the better of cuBLAS and cuBLASLt in the same blocks of
// turns: 4096³ 796 TFLOP/s, 1.02; 6144³ 1.02 to 1.03; 4097³ 3.6; 4095³ 3.8; 4096×4096×4100 2.5; 1023³ 1.7. At 4096³,
// from rung 7 on: 0.97 (7, with stores by TMA at once), 1.00 (8), 1.02 (9, beneath the next products).
//
// A tile of 128×256 takes 65.5 thousand clocks of K = 4096 (clock64), what its products alone take at 4096 operations
// a clock. Stores that held them up cost 3000 more a tile when they came all at once. What is left is power: the clock
// stands at 1.98 GHz before a launch and at 1.6 GHz in it. Blocks that are not needed take from it: 8192³ is 0.8 %
// faster on 128 multiprocessors, in 16 whole waves, than on 132.
#include "../../common/cluster.cuh"
#include "../../common/wgmma.cuh"
#include "operand.cuh"
#include "padded.cuh"
#include "ring.cuh"
#include "store.cuh"
#include "tile_order.cuh"

namespace wgmma_persistent {

// HINT: what the second-level cache shall keep. 0 leaves it alone, 1 keeps A, 2 keeps B, 3 both, and lets go of the
// other.
template <int HINT>
struct Loader {
  unsigned long long a_policy = 0, b_policy = 0;

  __device__ __forceinline__ Loader() {
    if (HINT != 0) {
      a_policy = HINT & 1 ? hopper::policy_evict_last() : hopper::policy_evict_first();
      b_policy = HINT & 2 ? hopper::policy_evict_last() : hopper::policy_evict_first();
    }
  }

  // A box to this block, or to those of the cluster that `blocks` has a bit for.
  __device__ __forceinline__ void load(unsigned to, const hopper::TensorMap* map, unsigned barrier, int x, int y,
                                       bool shared, unsigned short blocks, unsigned long long policy) const {
    if (HINT != 0) {
      shared ? hopper::tma_load_multicast_hinted(to, map, barrier, x, y, blocks, policy)
             : hopper::tma_load_hinted(to, map, barrier, x, y, policy);
    } else {
      shared ? hopper::tma_load_multicast(to, map, barrier, x, y, blocks)
             : hopper::tma_load(to, map, barrier, x, y);
    }
  }
};

}  // namespace wgmma_persistent

// A transposed operand lies in memory as K×M, or N×K. a_copy and b_copy are where operands go whose rows TMA cannot
// read, `met` is where blocks meet then; `nowhere` is what c_map is of where TMA cannot write rows of C.
template <typename T, bool TRANSPOSE_A, bool TRANSPOSE_B, int BM, int BN, int BK, int CONSUMERS, int STAGES,
          int CLUSTER_M, int CLUSTER_N, int GROUP, int ORDER, int STORE, int BUFFERS, int DEFER, int HINT,
          int BLOCKS>
__global__ void __launch_bounds__(CONSUMERS * 128 + 128, BLOCKS)
    gemm_wgmma_persistent(const T* __restrict__ A, const T* __restrict__ B, T* __restrict__ C, T* a_copy, T* b_copy,
                          unsigned* met, const T* nowhere, int M, int N, int K, int lda, int ldb, int ldc,
                          const __grid_constant__ hopper::TensorMap a_map,
                          const __grid_constant__ hopper::TensorMap b_map,
                          const __grid_constant__ hopper::TensorMap c_map) {
  using namespace wgmma_persistent;
  using Kind = typename wgmma::OfElement<T>::Kind;
  constexpr wgmma::Major A_MAJOR = TRANSPOSE_A ? wgmma::Major::MN : wgmma::Major::K;
  constexpr wgmma::Major B_MAJOR = TRANSPOSE_B ? wgmma::Major::K : wgmma::Major::MN;
  using ATile = OperandTile<A_MAJOR, BM, BK, CLUSTER_N>;
  using BTile = OperandTile<B_MAJOR, BN, BK, CLUSTER_M>;
  constexpr int PARTS = BM / (64 * CONSUMERS), CLUSTER = CLUSTER_M * CLUSTER_N;
  constexpr unsigned SLABS_BYTES = STORE == store::DIRECT ? 0 : CONSUMERS * 4 * BUFFERS * store::SLAB_BYTES;
  static_assert(BM % (64 * CONSUMERS) == 0, "each consumer has parts of 64 rows");
  static_assert((BN + 63) / 64 % BUFFERS == 0, "slabs take turns, from tile to tile");

  // --- 14: rows at multiples of 16 bytes
  if (lda % 8 != 0 || ldb % 8 != 0) {
    constexpr int AT_ONCE = CONSUMERS == 3 || BLOCKS == 2 ? 2 : 8;  // or the copies' registers do not suffice
    copy_padded_operands<T, TRANSPOSE_A, TRANSPOSE_B, AT_ONCE>(A, B, a_copy, b_copy, met, M, N, K, lda, ldb);
  }

  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned a_tiles = hopper::shared_address(memory);
  const unsigned b_tiles = a_tiles + STAGES * ATile::BYTES, slabs = b_tiles + STAGES * BTile::BYTES;
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);

  Ring<STAGES> ring(slabs + SLABS_BYTES);
  if (threadIdx.x == 0) {
    hopper::prefetch_map(&a_map);
    hopper::prefetch_map(&b_map);
  } else if (threadIdx.x == 32) {
    ring.init(CONSUMERS * CLUSTER);
  } else if (threadIdx.x == 64 && STORE == store::TMA) {
    hopper::prefetch_map(&c_map);
  }

  // --- 8: this block's place in its cluster, and who else gets what it fetches
  const unsigned rank = CLUSTER > 1 ? hopper::cluster_rank() : 0;
  const int rank_m = rank / CLUSTER_N, rank_n = rank % CLUSTER_N;

  // --- 7: tiles of the cluster, one after the other
  const int rows = (M + BM * CLUSTER_M - 1) / (BM * CLUSTER_M), columns = (N + BN * CLUSTER_N - 1) / (BN * CLUSTER_N);
  const int blocks_k = (K + BK - 1) / BK, step = gridDim.x / CLUSTER;
  const auto locate = [&](int tile, int& row, int& column) {
    tile_order::locate<GROUP, ORDER>(tile, rows, columns, row, column);
    row = (row * CLUSTER_M + rank_m) * BM;
    column = (column * CLUSTER_N + rank_n) * BN;
  };
  // The first tile is located while barriers are made ready.
  int row, column;
  locate(blockIdx.x / CLUSTER, row, column);
  if (CLUSTER > 1) {
    __syncwarp();
    hopper::cluster_arrive_relaxed();
    hopper::cluster_wait();
  } else {
    __syncthreads();
  }

  if (warpgroup == 0) {
    hopper::setmaxnreg_decrease<PRODUCER_REGISTERS<CONSUMERS, BLOCKS>>();
    if (threadIdx.x == 0) {
      const unsigned short a_blocks = ((1 << CLUSTER_N) - 1) << (rank_m * CLUSTER_N);
      unsigned short b_blocks = 0;
#pragma unroll
      for (int i = 0; i < CLUSTER_M; ++i) b_blocks |= 1 << (i * CLUSTER_N + rank_n);
      const Loader<HINT> loader;
      for (int tile = blockIdx.x / CLUSTER; tile < rows * columns; tile += step) {
        for (int block = 0; block < blocks_k; ++block, ring.advance()) {
          hopper::mbarrier_wait(ring.released(), ring.phase ^ 1);
          hopper::mbarrier_arrive_expect(ring.arrived(), ATile::BYTES + BTile::BYTES);
          ATile::fetch(a_tiles + ring.stage * ATile::BYTES, row, block * BK, rank_n, [&](unsigned to, int x, int y) {
            loader.load(to, &a_map, ring.arrived(), x, y, CLUSTER_N > 1, a_blocks, loader.a_policy);
          });
          BTile::fetch(b_tiles + ring.stage * BTile::BYTES, column, block * BK, rank_m, [&](unsigned to, int x, int y) {
            loader.load(to, &b_map, ring.arrived(), x, y, CLUSTER_M > 1, b_blocks, loader.b_policy);
          });
        }
        locate(tile + step, row, column);
      }
    }
  } else {
    hopper::setmaxnreg_increase<CONSUMER_REGISTERS<CONSUMERS, BLOCKS>>();
    const int thread = threadIdx.x % 128, first = (warpgroup - 1) * PARTS * 64;
    const unsigned slab = slabs + (threadIdx.x / 32 - 4) * BUFFERS * store::SLAB_BYTES;
    const bool by_tma = STORE == store::TMA && ldc % 8 == 0;
    const auto release = [&](unsigned barrier) {
      if (CLUSTER > 1) {
        if (thread < CLUSTER) hopper::mbarrier_arrive_at(barrier, thread);
      } else if (thread == 0) {
        hopper::mbarrier_arrive(barrier);
      }
    };
    // Rounded sums leave in pieces of 64 columns, through one slab of the warp's after the other. After the last tile
    // nobody needs the ring: there every piece has a slab of its own.
    constexpr int SLABS = (BN + 63) / 64, PIECES = PARTS * SLABS;
    static_assert(STAGES * (ATile::BYTES + BTile::BYTES) >= CONSUMERS * 4 * PIECES * store::SLAB_BYTES);
    const unsigned last_slab = a_tiles + (threadIdx.x / 32 - 4) * PIECES * store::SLAB_BYTES;
    unsigned pairs[PARTS][BN / 4];
    const auto store_by_tma = [&](int piece, int row, int column, bool last) {
      const int part = piece / SLABS, top = row + first + part * 64, buffer = piece % BUFFERS;
      if (!last && threadIdx.x % 32 == 0) hopper::tma_store_wait_read<BUFFERS - 1>();
      const unsigned through = last ? last_slab + piece * store::SLAB_BYTES : slab + buffer * store::SLAB_BYTES;
      store::one_slab<T, store::TMA>(pairs[part], piece % SLABS, through, &c_map, C, ldc, top, column, M, N);
    };
    // So many k-blocks from the tile's first on are in stages that are filled again. Of the rest nobody is told: a
    // block may end while the others of its cluster still compute.
    int refills = (rows * columns - static_cast<int>(blockIdx.x) / CLUSTER + step - 1) / step * blocks_k - STAGES;
    // Of the tile before this one, beneath whose products it is stored.
    int stored_row = 0, stored_column = 0, pieces_left = 0;
    for (int tile = blockIdx.x / CLUSTER; tile < rows * columns; tile += step) {
      float sums[PARTS][BN / 2];
      // Starts the products of a stage. The first of a tile overwrite the sums: said by a constant, or the compiler
      // would keep their registers for them from the kernel's beginning on.
      const auto multiply = [&](int add) {
        const unsigned long long a = ATile::descriptor(a_tiles + ring.stage * ATile::BYTES, first);
        const unsigned long long b = BTile::descriptor(b_tiles + ring.stage * BTile::BYTES);
        hopper::mbarrier_wait(ring.arrived(), ring.phase);
        wgmma::fence();
#pragma unroll
        for (int k = 0; k < BK / Kind::DEPTH; ++k) {
#pragma unroll
          for (int part = 0; part < PARTS; ++part) {
            wgmma::multiply<Kind, A_MAJOR, B_MAJOR>(sums[part], a + part * ATile::NEXT_64 + ATile::step(k),
                                                    b + BTile::step(k), add | k);
          }
        }
        wgmma::commit();
        ring.advance();
      };
      multiply(0);
      for (int block = 1; block < blocks_k; ++block) {
        multiply(1);
        if (DEFER && block <= pieces_left) {
#pragma unroll
          for (int piece = 0; piece < PIECES; ++piece) {
            if (block == piece + 1) store_by_tma(piece, stored_row, stored_column, false);
          }
        }
        wgmma::wait<1>();  // the step before this one is done
        if (block - 1 < refills) release(ring.released_before(2));
      }
      wgmma::wait<0>();
      if (blocks_k - 1 < refills) release(ring.released_before(1));
      refills -= blocks_k;

      // --- 9: the tile's way to C
#pragma unroll
      for (int part = 0; part < PARTS; ++part) store::round_all<T>(pairs[part], sums[part]);
      const bool last = tile + step >= rows * columns;
      if (DEFER && by_tma && !last && blocks_k > PIECES) {
        stored_row = row, stored_column = column, pieces_left = PIECES;
      } else if (by_tma) {
        if (last) hopper::named_barrier(1, CONSUMERS * 128);  // the others read the ring no more
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) store_by_tma(piece, row, column, last);
      } else {
        constexpr int WAY = STORE == store::DIRECT ? store::DIRECT : store::THROUGH;
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
          const int part = piece / SLABS, top = row + first + part * 64;
          store::one_slab<T, WAY>(pairs[part], piece % SLABS, slab, &c_map, C, ldc, top, column, M, N);
        }
      }
      locate(tile + step, row, column);
    }
    if (by_tma && threadIdx.x % 32 == 0) hopper::tma_store_wait_read<0>();
  }
}
