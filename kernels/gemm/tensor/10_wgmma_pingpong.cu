// Rung 10: two consumers take turns: while one stores its tile, the other multiplies.
//
// Adds to rung 9: where K is short, storing a tile takes as long as computing it, and the tensor cores wait for
// it: the two consumers of rungs 6 to 9 have halves of one tile and come to its end together. Here each has a tile of
// its own, of half the size, and they are half a tile apart: a pair of barriers lets only one at a time into the
// main loop. The price is that a tile of BM × BN has fewer products for each byte that is loaded.
//
// Both take from one ring, in the order in which the producer fills it: all k-blocks of the first consumer's tile,
// then those of the second's.
//
// On an H200 with a cold second-level cache, bfloat16: 4096×4096×64 in 12.1 µs, 1.15 times as fast as cuBLASLt's best;
// 65536×128×128 in 11.7 µs, 1.06 times; at 4096³ with a cluster of two 0.98.
#include "../../common/cluster.cuh"
#include "../../common/wgmma.cuh"
#include "division.cuh"
#include "operand.cuh"
#include "padded.cuh"
#include "ring.cuh"
#include "store.cuh"
#include "tile_order.cuh"

// A transposed operand lies in memory as K×M, or N×K. CLUSTER blocks work on tiles below one another in step, and each
// loads a part of B's tile for all, but of the first AHEAD k-blocks, which each loads for itself before all have met.
// With STORE 3 the block's last tile leaves through the ring, every slab of it from a place of its own: nothing
// covers the time that its slabs would wait for each other.
template <typename T, bool TRANSPOSE_A, bool TRANSPOSE_B, int BM, int BN, int BK, int STAGES, int CLUSTER, int GROUP,
          int ORDER, int STORE, int AHEAD, int BUFFERS>
__global__ void __launch_bounds__(384, 1)
    gemm_wgmma_pingpong(const T* __restrict__ A, const T* __restrict__ B, T* __restrict__ C, T* a_copy, T* b_copy,
                        unsigned* met, const T* nowhere, int M, int N, int K, int lda, int ldb, int ldc,
                        const __grid_constant__ hopper::TensorMap a_map,
                        const __grid_constant__ hopper::TensorMap b_map,
                        const __grid_constant__ hopper::TensorMap c_map) {
  using Kind = typename wgmma::OfElement<T>::Kind;
  constexpr wgmma::Major A_MAJOR = TRANSPOSE_A ? wgmma::Major::MN : wgmma::Major::K;
  constexpr wgmma::Major B_MAJOR = TRANSPOSE_B ? wgmma::Major::K : wgmma::Major::MN;
  using ATile = OperandTile<A_MAJOR, BM, BK>;
  using BTile = OperandTile<B_MAJOR, BN, BK, CLUSTER>;
  constexpr int PARTS = BM / 64, TURN = 1, BOTH = 256;
  constexpr unsigned SLABS_BYTES = STORE == store::DIRECT ? 0 : 2 * 4 * BUFFERS * store::SLAB_BYTES;
  constexpr bool BY_TMA = STORE == store::TMA || STORE == store::IN_RING;
  static_assert(AHEAD <= STAGES, "the first k-blocks need no stage twice");
  static_assert(STORE != store::IN_RING || BM * BN * 2 <= STAGES * (ATile::BYTES + BTile::BYTES), "it takes a tile");

  // Rows that TMA cannot read are copied to where it can, by all blocks, before any of them computes.
  if (lda % 8 != 0 || ldb % 8 != 0) {
    copy_padded_operands<T, TRANSPOSE_A, TRANSPOSE_B, 8>(A, B, a_copy, b_copy, met, M, N, K, lda, ldb);
  }

  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned a_tiles = hopper::shared_address(memory);
  const unsigned b_tiles = a_tiles + STAGES * ATile::BYTES, slabs = b_tiles + STAGES * BTile::BYTES;
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int rank = CLUSTER > 1 ? hopper::cluster_rank() : 0;

  // A stage belongs to one of the two consumers at a time.
  Ring<STAGES> ring(slabs + SLABS_BYTES);
  const int rows = (M + BM * CLUSTER - 1) / (BM * CLUSTER), columns = (N + BN - 1) / BN, tiles = rows * columns;
  const int blocks_k = (K + BK - 1) / BK, step = gridDim.x / CLUSTER;
  const auto locate = [&](int tile, int& row, int& column) {
    if (ORDER == tile_order::BY_ROWS && rows <= GROUP) {  // one band
      streams::unravel(tile, rows, column, row);
    } else {
      tile_order::locate<GROUP, ORDER>(tile, rows, columns, row, column);
    }
    row = (row * CLUSTER + rank) * BM;
    column *= BN;
  };
  int row, column, fetched = 0;
  locate(blockIdx.x / CLUSTER, row, column);
  const auto fetch = [&](int block, const auto& boxes_of_b) {
    const unsigned barrier = ring.arrived();
    hopper::mbarrier_wait(ring.released(), ring.phase ^ 1);
    hopper::mbarrier_arrive_expect(barrier, ATile::BYTES + BTile::BYTES);
    ATile::fetch(a_tiles + ring.stage * ATile::BYTES, row, block * BK, 0,
                 [&](unsigned to, int x, int y) { hopper::tma_load(to, &a_map, barrier, x, y); });
    boxes_of_b(b_tiles + ring.stage * BTile::BYTES, barrier);
    ring.advance();
  };
  if (threadIdx.x == BOTH) {
    hopper::prefetch_map(&a_map);
    hopper::prefetch_map(&b_map);
    ring.init(CLUSTER);
    for (; fetched < min(AHEAD, blocks_k); ++fetched) {
      fetch(fetched, [&](unsigned to, unsigned barrier) {
#pragma unroll
        for (int share = 0; share < CLUSTER; ++share) {
          BTile::fetch(to, column, fetched * BK, share,
                       [&](unsigned box, int x, int y) { hopper::tma_load(box, &b_map, barrier, x, y); });
        }
      });
    }
    if (BY_TMA) hopper::prefetch_map(&c_map);
  }
  if (CLUSTER > 1) {
    __syncwarp();
    hopper::cluster_arrive_relaxed();
    hopper::cluster_wait();
  } else {
    __syncthreads();
  }

  if (group == 2) {
    hopper::setmaxnreg_decrease<PRODUCER_REGISTERS<2>>();
    if (threadIdx.x == BOTH) {
      for (int tile = blockIdx.x / CLUSTER; tile < tiles; tile += step) {
        for (int block = fetched; block < blocks_k; ++block) {
          fetch(block, [&](unsigned to, unsigned barrier) {
            BTile::fetch(to, column, block * BK, rank, [&](unsigned box, int x, int y) {
              CLUSTER == 1 ? hopper::tma_load(box, &b_map, barrier, x, y)
                           : hopper::tma_load_multicast(box, &b_map, barrier, x, y, (1 << CLUSTER) - 1);
            });
          });
        }
        fetched = 0;
        if (tile + step < tiles) locate(tile + step, row, column);
      }
    }
  } else {
    hopper::setmaxnreg_increase<CONSUMER_REGISTERS<2>>();
    const int thread = threadIdx.x % 128;
    const unsigned slab = slabs + threadIdx.x / 32 * BUFFERS * store::SLAB_BYTES;
    const bool by_tma = BY_TMA && ldc % 8 == 0;
    const auto skip_tile = [&] {
      ring.stage += blocks_k;
      ring.phase ^= ring.stage / STAGES & 1;
      ring.stage %= STAGES;
    };
    const auto release = [&](unsigned barrier) {
      if (CLUSTER > 1) {
        if (thread < CLUSTER) hopper::mbarrier_arrive_at(barrier, thread);
      } else if (thread == 0) {
        hopper::mbarrier_arrive(barrier);
      }
    };
    // Barrier TURN + g opens the main loop for consumer g; the second one opens it for the first one's first tile.
    int tile = blockIdx.x / CLUSTER;
    // So many k-blocks from the tile's first on, the others' between them too, are in stages that are filled again. Of
    // the rest nobody is told: a block then may end while the others of its cluster still compute.
    int refills = (tiles - tile + step - 1) / step * blocks_k - STAGES;
    if (group == 1) {
      if (tile < tiles) hopper::named_barrier_arrive(TURN, BOTH);
      tile += step;
      refills -= blocks_k;
      skip_tile();
    }
    for (; tile < tiles; tile += 2 * step, refills -= 2 * blocks_k, skip_tile()) {
      float sums[PARTS][BN / 2];
      locate(tile, row, column);
      hopper::named_barrier(TURN + group, BOTH);
      for (int block = 0; block < blocks_k; ++block, ring.advance()) {
        const unsigned long long a = ATile::descriptor(a_tiles + ring.stage * ATile::BYTES);
        const unsigned long long b = BTile::descriptor(b_tiles + ring.stage * BTile::BYTES);
        hopper::mbarrier_wait(ring.arrived(), ring.phase);
        wgmma::fence();
#pragma unroll
        for (int k = 0; k < BK / Kind::DEPTH; ++k) {
#pragma unroll
          for (int part = 0; part < PARTS; ++part) {
            wgmma::multiply<Kind, A_MAJOR, B_MAJOR>(sums[part], a + part * ATile::NEXT_64 + ATile::step(k),
                                                    b + BTile::step(k), block | k);
          }
        }
        wgmma::commit();
        wgmma::wait<1>();
        if (block > 0 && block - 1 < refills) release(ring.released_before());
      }
      // All products are on their way: the other's queue up behind them.
      if (tile + step < tiles) hopper::named_barrier_arrive(TURN + 1 - group, BOTH);
      wgmma::wait<0>();
      if (blocks_k - 1 < refills) release(ring.released_before());

      if (STORE == store::IN_RING && by_tma && tile + step >= tiles && blocks_k >= STAGES) {
        // All stages held k-blocks of this tile last, and the warpgroup's four warps are done with them.
        hopper::named_barrier(TURN + 2 + group, 128);
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
          unsigned pairs[BN / 4];
          store::round_all<T>(pairs, sums[part]);
#pragma unroll
          for (int s = 0; s < BN / 64; ++s) {
            const unsigned place = a_tiles + ((part * (BN / 64) + s) * 4 + thread / 32) * store::SLAB_BYTES;
            store::one_slab<T, store::TMA>(pairs, s, place, &c_map, C, ldc, row + part * 64, column, M, N);
          }
        }
        continue;
      }
      const auto store_all = [&](const auto& store_part) {
#pragma unroll
        for (int part = 0; part < PARTS; ++part) store_part(sums[part], row + part * 64);
      };
      if constexpr (STORE == store::DIRECT) {
        store_all([&](const float(&part)[BN / 2], int top) { store::direct(part, C, ldc, top, column, M, N); });
      } else if (by_tma) {
        store_all([&](const float(&part)[BN / 2], int top) {
          store::through<T, store::TMA, BUFFERS>(part, slab, &c_map, C, ldc, top, column, M, N);
        });
      } else {
        store_all([&](const float(&part)[BN / 2], int top) {
          store::through<T, store::THROUGH, 1>(part, slab, &c_map, C, ldc, top, column, M, N);
        });
      }
    }
    if (by_tma && threadIdx.x % 32 == 0) hopper::tma_store_wait_read<0>();
  }
}
