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
#include "../../common/grid.cuh"
#include "../../common/wgmma.cuh"
#include "operand.cuh"
#include "ring.cuh"
#include "store.cuh"
#include "tile_order.cuh"

// A transposed operand lies in memory as K×M, or N×K. CLUSTER blocks work on tiles below one another in step, and each
// loads a part of B's tile for all.
template <typename T, bool TRANSPOSE_A, bool TRANSPOSE_B, int BM, int BN, int BK, int STAGES, int CLUSTER, int GROUP,
          int ORDER, int STORE, int BUFFERS>
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

  // Rows that TMA cannot read are copied to where it can, by all blocks, before any of them computes.
  if (lda % 8 != 0 || ldb % 8 != 0) {
#pragma unroll 1
    for (int operand = 0; operand < 2; ++operand) {
      const int ld = operand ? ldb : lda, height = operand ? (TRANSPOSE_B ? N : K) : TRANSPOSE_A ? K : M;
      const int width = operand ? (TRANSPOSE_B ? K : N) : TRANSPOSE_A ? M : K;
      if (ld % 8 != 0)
        grid::copy_padded(operand ? b_copy : a_copy, (width + 7) / 8 * 8, operand ? B : A, ld, height, width);
    }
    grid::sync(met);
  }

  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned a_tiles = hopper::shared_address(memory);
  const unsigned b_tiles = a_tiles + STAGES * ATile::BYTES, slabs = b_tiles + STAGES * BTile::BYTES;
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int rank = CLUSTER > 1 ? hopper::cluster_rank() : 0;

  // A stage belongs to one of the two consumers at a time.
  Ring<STAGES> ring(slabs + SLABS_BYTES);
  if (threadIdx.x == BOTH) {
    hopper::prefetch_map(&a_map);
    hopper::prefetch_map(&b_map);
    if (STORE == store::TMA) hopper::prefetch_map(&c_map);
    ring.init(CLUSTER);
  }
  if (CLUSTER > 1) {
    hopper::cluster_sync();
  } else {
    __syncthreads();
  }

  const int rows = (M + BM * CLUSTER - 1) / (BM * CLUSTER), columns = (N + BN - 1) / BN, tiles = rows * columns;
  const int blocks_k = (K + BK - 1) / BK, step = gridDim.x / CLUSTER;
  const auto locate = [&](int tile, int& row, int& column) {
    tile_order::locate<GROUP, ORDER>(tile, rows, columns, row, column);
    row = (row * CLUSTER + rank) * BM;
    column *= BN;
  };

  if (group == 2) {
    hopper::setmaxnreg_decrease<PRODUCER_REGISTERS<2>>();
    if (threadIdx.x == BOTH) {
      for (int tile = blockIdx.x / CLUSTER; tile < tiles; tile += step) {
        int row, column;
        locate(tile, row, column);
        for (int block = 0; block < blocks_k; ++block, ring.advance()) {
          const unsigned barrier = ring.arrived();
          hopper::mbarrier_wait(ring.released(), ring.phase ^ 1);
          hopper::mbarrier_arrive_expect(barrier, ATile::BYTES + BTile::BYTES);
          ATile::fetch(a_tiles + ring.stage * ATile::BYTES, row, block * BK, 0,
                       [&](unsigned to, int x, int y) { hopper::tma_load(to, &a_map, barrier, x, y); });
          BTile::fetch(b_tiles + ring.stage * BTile::BYTES, column, block * BK, rank, [&](unsigned to, int x, int y) {
            CLUSTER == 1 ? hopper::tma_load(to, &b_map, barrier, x, y)
                         : hopper::tma_load_multicast(to, &b_map, barrier, x, y, (1 << CLUSTER) - 1);
          });
        }
      }
    }
  } else {
    hopper::setmaxnreg_increase<CONSUMER_REGISTERS<2>>();
    const int thread = threadIdx.x % 128;
    const unsigned slab = slabs + threadIdx.x / 32 * BUFFERS * store::SLAB_BYTES;
    const bool by_tma = STORE == store::TMA && ldc % 8 == 0;
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
    if (group == 1) {
      if (tile < tiles) hopper::named_barrier_arrive(TURN, BOTH);
      tile += step;
      skip_tile();
    }
    for (; tile < tiles; tile += 2 * step, skip_tile()) {
      float sums[PARTS][BN / 2];
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
        if (block > 0) release(ring.released_before());
      }
      // All products are on their way: the other's queue up behind them.
      if (tile + step < tiles) hopper::named_barrier_arrive(TURN + 1 - group, BOTH);
      wgmma::wait<0>();
      release(ring.released_before());

      int row, column;
      locate(tile, row, column);
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        const int top = row + part * 64;
        if constexpr (STORE == store::DIRECT) {
          store::direct(sums[part], C, ldc, top, column, M, N);
        } else if (by_tma) {
          store::through<T, store::TMA, BUFFERS>(sums[part], slab, &c_map, C, ldc, top, column, M, N);
        } else {
          store::through<T, store::THROUGH, 1>(sums[part], slab, &c_map, C, ldc, top, column, M, N);
        }
      }
    }
    if (by_tma && threadIdx.x % 32 == 0) hopper::tma_store_wait_read<0>();
  }
  // A block's shared memory must last as long as others of the cluster write to it or arrive at its barriers.
  if (CLUSTER > 1) hopper::cluster_sync();
}
