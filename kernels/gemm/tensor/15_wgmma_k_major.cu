// Rung 15: tf32, int8 and fp8, whose factors tensor cores of Hopper read along K only.
//
// Adds to rung 8: classes whose rate is twice (int8, e4m3) and half (tf32) that of 16 bits, and layouts. wgmma can turn
// factors of 16 bits around, others it cannot: A has to lie as M rows of K and B as N rows of K, layout nt. A factor
// that lies otherwise is transposed by all blocks first, who meet and go on with the copy, which costs it being read
// and written once. Rows that TMA cannot read are copied to rows that it can on the way, or like rung 14.
//
// tf32: the multiplier reads the upper 19 bits of a float32. TMA rounds to them on its way where the map says tf32
// ("CUtensorMapDataType": TFLOAT32), at no cost; left alone, the lower bits are cut off, which errs twice as far and
// always towards zero.
//
// e4m3: tensor cores keep 14 bits of a sum (sweeper/dtypes.py). PROMOTE p adds what p k-blocks give, 128 p products, to
// sums in float32 and begins anew; 0 leaves sums in the tensor cores throughout, as cuBLASLt's fast accumulation
// does. It takes a second set of registers, so tiles are half as large.
//
// PINGPONG: each consumer has tiles of its own, in turns, so that one multiplies while the other stores. Where a tile
// takes few clocks, as in classes of 8 bits, that is worth more than the larger tile that consumers have together.
//
// On an H200 with a cold second-level cache, layout nt, and the better of cuBLAS and cuBLASLt beside it, in TFLOP/s:
//
//             tf32          int8            e4m3, all in tensor cores    e4m3, PROMOTE 4
//    4096³    405, 405      1440, 1422      1411, 1448                   1245, 1290 by default
//    8192³    412, 410      1623, 1550      1554, 1549
//
// In layout nn, the copy in the time: int8 1164 at 4096³ and 1471 at 8192³, where cuBLASLt has 126; e4m3 1191 and 1421,
// where it has none.
//
// The tile's results go straight from registers to C: sums of 32 bits fill the sectors of a row as they are.
#include "../../common/grid.cuh"
#include "k_major.cuh"
#include "ring.cuh"
#include "tile_order.cuh"

// a_copy and b_copy are where factors go that TMA cannot read along K, `met` is where blocks meet then.
template <typename T, int TRANSPOSE_A, int TRANSPOSE_B, int BM, int BN, int CONSUMERS, int STAGES, int CLUSTER_M,
          int CLUSTER_N, int GROUP, int ORDER, int PROMOTE, int PINGPONG>
__global__ void __launch_bounds__(CONSUMERS * 128 + 128, 1)
    gemm_wgmma_k_major(const T* __restrict__ A, const T* __restrict__ B,
                       typename k_major::Factor<T>::Output* __restrict__ C, T* a_copy, T* b_copy, unsigned* met,
                       int M, int N, int K, int lda, int ldb, int ldc, const __grid_constant__ hopper::TensorMap a_map,
                       const __grid_constant__ hopper::TensorMap b_map) {
  using namespace k_major;
  using Kind = typename Factor<T>::Kind;
  using Sum = typename Kind::Sum;
  constexpr int PARTS = BM / (64 * (PINGPONG ? 1 : CONSUMERS)), CLUSTER = CLUSTER_M * CLUSTER_N;
  constexpr int UNIT = 16 / static_cast<int>(sizeof(T));  // elements of which TMA wants whole numbers in a row
  constexpr unsigned A_BYTES = BM * ROW_BYTES, B_BYTES = BN * ROW_BYTES, RING_BYTES = STAGES * (A_BYTES + B_BYTES);
  constexpr int WARPS = CONSUMERS * 4 + 4;
  static_assert(BM % (64 * (PINGPONG ? 1 : CONSUMERS)) == 0 && BN % 8 == 0, "parts cover the tile");
  static_assert(BM % (8 * CLUSTER_N) == 0 && BN % (8 * CLUSTER_M) == 0, "blocks of a cluster fetch equal shares");

  extern __shared__ unsigned char memory[];
  const unsigned a_tiles = (hopper::shared_address(memory) + 1023) & ~1023u;
  const unsigned b_tiles = a_tiles + STAGES * A_BYTES;
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);

  // Who reads a block's share of A or B releases the stage of that block: its row and its column of the cluster.
  Ring<STAGES> ring(b_tiles + STAGES * B_BYTES);
  if (threadIdx.x == 0) ring.init((PINGPONG ? 1 : CONSUMERS) * (CLUSTER_M + CLUSTER_N - 1));

  const int pitch = (K + UNIT - 1) / UNIT * UNIT;
  const bool a_copied = TRANSPOSE_A || lda % UNIT != 0, b_copied = !TRANSPOSE_B || ldb % UNIT != 0;
  if (TRANSPOSE_A) {
    transpose<RING_BYTES, WARPS>(a_copy, pitch, A, lda, K, M, memory);
  } else if (a_copied) {
    grid::copy_padded(a_copy, pitch, A, lda, M, K);
  }
  if (!TRANSPOSE_B) {
    transpose<RING_BYTES, WARPS>(b_copy, pitch, B, ldb, K, N, memory);
  } else if (b_copied) {
    grid::copy_padded(b_copy, pitch, B, ldb, N, K);
  }
  if (a_copied || b_copied) {
    hopper::fence_async_proxy();  // TMA writes where the copies passed through
    grid::sync(met);
  }

  const unsigned rank = CLUSTER > 1 ? hopper::cluster_rank() : 0;
  const int rank_m = rank / CLUSTER_N, rank_n = rank % CLUSTER_N;
  if (CLUSTER > 1) {
    hopper::cluster_sync();
  } else {
    __syncthreads();
  }

  const int rows = (M + BM * CLUSTER_M - 1) / (BM * CLUSTER_M), columns = (N + BN * CLUSTER_N - 1) / (BN * CLUSTER_N);
  const int blocks_k = (K + DEPTH<T> - 1) / DEPTH<T>, step = gridDim.x / CLUSTER;
  const auto locate = [&](int tile, int& row, int& column) {
    tile_order::locate<GROUP, ORDER>(tile, rows, columns, row, column);
    row = (row * CLUSTER_M + rank_m) * BM;
    column = (column * CLUSTER_N + rank_n) * BN;
  };

  if (warpgroup == 0) {
    hopper::setmaxnreg_decrease<PRODUCER_REGISTERS<CONSUMERS>>();
    if (threadIdx.x == 0) {
      constexpr int A_SHARE = BM / CLUSTER_N, B_SHARE = BN / CLUSTER_M;  // rows that this block fetches
      const unsigned short a_blocks = ((1 << CLUSTER_N) - 1) << (rank_m * CLUSTER_N);
      unsigned short b_blocks = 0;
#pragma unroll
      for (int i = 0; i < CLUSTER_M; ++i) b_blocks |= 1 << (i * CLUSTER_N + rank_n);
      const auto load = [&](unsigned to, const hopper::TensorMap* map, int k, int row, bool shared,
                            unsigned short blocks) {
        shared ? hopper::tma_load_multicast(to, map, ring.arrived(), k, row, blocks)
               : hopper::tma_load(to, map, ring.arrived(), k, row);
      };
      for (int tile = blockIdx.x / CLUSTER; tile < rows * columns; tile += step) {
        int row, column;
        locate(tile, row, column);
        for (int block = 0; block < blocks_k; ++block, ring.advance()) {
          hopper::mbarrier_wait(ring.released(), ring.phase ^ 1);
          hopper::mbarrier_arrive_expect(ring.arrived(), A_BYTES + B_BYTES);
          load(a_tiles + ring.stage * A_BYTES + rank_n * A_SHARE * ROW_BYTES, &a_map, block * DEPTH<T>,
               row + rank_n * A_SHARE, CLUSTER_N > 1, a_blocks);
          load(b_tiles + ring.stage * B_BYTES + rank_m * B_SHARE * ROW_BYTES, &b_map, block * DEPTH<T>,
               column + rank_m * B_SHARE, CLUSTER_M > 1, b_blocks);
        }
      }
    }
  } else {
    hopper::setmaxnreg_increase<CONSUMER_REGISTERS<CONSUMERS>>();
    const int thread = threadIdx.x % 128, first = PINGPONG ? 0 : (warpgroup - 1) * PARTS * 64;
    const int others = PINGPONG ? CONSUMERS - 1 : 0, turn = PINGPONG ? warpgroup - 1 : 0;
    const bool tells = thread < CLUSTER && (thread / CLUSTER_N == rank_m || thread % CLUSTER_N == rank_n);
    const auto release = [&](unsigned barrier) {
      if (CLUSTER > 1) {
        if (tells) hopper::mbarrier_arrive_at(barrier, thread);
      } else if (thread == 0) {
        hopper::mbarrier_arrive(barrier);
      }
    };
    // Whose turn it is waits at barrier 1 + turn. A consumer passes it on when the last k-block of its tile has come: what
    // is next in the ring is then at most one round ahead, which is as far as parities tell.
    if (PINGPONG && turn == 1) hopper::named_barrier_arrive(1, 256);
    ring.skip(turn * blocks_k);
    for (int tile = blockIdx.x / CLUSTER + turn * step; tile < rows * columns; tile += (others + 1) * step) {
      Sum sums[PARTS][BN / 2], total[PROMOTE > 0 ? PARTS : 1][PROMOTE > 0 ? BN / 2 : 1] = {};
      if (PINGPONG) hopper::named_barrier(1 + turn, 256);
      for (int from = 0, to; from < blocks_k; from = to) {
        to = PROMOTE > 0 ? min(from + PROMOTE, blocks_k) : blocks_k;
        for (int block = from; block < to; ++block, ring.advance()) {
          const unsigned long long a = wgmma::descriptor_k(a_tiles + ring.stage * A_BYTES + first * ROW_BYTES);
          const unsigned long long b = wgmma::descriptor_k(b_tiles + ring.stage * B_BYTES);
          hopper::mbarrier_wait(ring.arrived(), ring.phase);
          wgmma::fence();
#pragma unroll
          for (int k = 0; k < STEPS; ++k) {
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
              wgmma::multiply<Kind>(sums[part], a + part * (64 * ROW_BYTES / 16) + k * wgmma::STEP_K,
                                    b + k * wgmma::STEP_K, block > from || k > 0);
            }
          }
          wgmma::commit();
          if (PINGPONG && block == blocks_k - 1 && tile + step < rows * columns) {
            hopper::named_barrier_arrive(2 - turn, 256);
          }
          wgmma::wait<1>();  // the step before this one is done
          if (block > from) release(ring.released_before());
        }
        wgmma::wait<0>();
        release(ring.released_before());
        if constexpr (PROMOTE > 0) {
#pragma unroll
          for (int part = 0; part < PARTS; ++part) {
#pragma unroll
            for (int i = 0; i < BN / 2; ++i) total[part][i] += sums[part][i];
          }
        }
      }
      ring.skip(others * blocks_k);

      int row, column;
      locate(tile, row, column);
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        const int top = row + first + part * 64;
        if constexpr (PROMOTE > 0) {
          store_sums(total[part], C, ldc, top, column, M, N);
        } else {
          store_sums(sums[part], C, ldc, top, column, M, N);
        }
      }
    }
  }
  // A block's shared memory must last as long as others of the cluster write to it or arrive at its barriers.
  if (CLUSTER > 1) hopper::cluster_sync();
}
