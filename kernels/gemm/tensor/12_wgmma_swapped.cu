// Rung 12: few rows of A, or a number that 64 does not cut well: the product is computed as Cᵀ = BᵀAᵀ.
//
// Adds to rung 11: a product of wgmma has 64 rows whatever is asked, but any multiple of 8 columns. With 16 rows
// of A, three quarters of the multiplications and of what is loaded for them would be for nothing. Turned round, B's
// columns are the 64, and ROWS is what A has, rounded up to 8. B lies as it did: row-major B is M-major Bᵀ, which
// wgmma reads as it is. What decides is how fast B comes from memory, so K is cut among enough blocks to
// keep all of the memory busy (rung 11 says how), and the ring is deep.
//
// With more rows the same freedom fits the tiles to the device: 1536² are 144 tiles of 128×128, and a second wave of
// them for 12, but 128 of 96×192. CLUSTER blocks have tiles below one another and load parts of B's tile for all.
//
// On an H200 with a cold second-level cache, bfloat16: 16×4096×4096 in 13.0 µs, which is 2.6 TB/s of B, and 1.23 times
// as fast as cuBLASLt's best; 128×4096×4096 in 15.0 µs, 1.14 times.
#include "../../common/cluster.cuh"
#include "streams.cuh"

// `nowhere` is what c_map is of where TMA cannot write rows of C.
template <typename T, int ROWS, int BN, int CONSUMERS, int STAGES, int CLUSTER, int SPLITS, int TOGETHER, int WAVES,
          int HINT, int BLOCKS>
__global__ void __launch_bounds__(CONSUMERS * 128 + 128, BLOCKS)
    gemm_wgmma_swapped(const T* __restrict__ A, const T* __restrict__ B, T* __restrict__ C, float* partial,
                       unsigned* arrived, const T* nowhere, int M, int N, int K, int lda, int ldb, int ldc,
                       const __grid_constant__ hopper::TensorMap a_map,
                       const __grid_constant__ hopper::TensorMap b_map,
                       const __grid_constant__ hopper::TensorMap c_map) {
  using namespace streams;
  using Kind = typename wgmma::OfElement<T>::Kind;
  using Division = Work<SPLITS, WAVES>;
  constexpr int THREADS = CONSUMERS * 128, SLABS = BN / CONSUMERS / CHUNK, CHUNKS = BN / CHUNK;
  constexpr unsigned A_BYTES = ROWS * DEPTH * 2, B_BYTES = CHUNKS * BOX_BYTES;
  // What a warpgroup stores at once, of its 64 columns of C; or what its threads need to add up.
  constexpr int SLAB_ROWS = ROWS > 128 && ROWS % 32 == 0 ? ROWS / 4 : ROWS > 64 ? ROWS / 2 : ROWS;
  constexpr unsigned SLAB_BYTES = (SLAB_ROWS + 15) / 16 * 16 * CHUNK * 2;
  // A warp stores sums of 4 rows and 8 columns at once: rows of sums in shared memory lie apart for it.
  constexpr int PITCH = TOGETHER ? BN + 4 : BN;
  constexpr int EVEN = 65536 / ((THREADS + 128) * BLOCKS) / 8 * 8;
  constexpr bool MOVES = SLABS * ROWS / 2 + 100 > EVEN;
  // A block begins with so many a thread: consumers that ask for more than the producer leaves wait without end.
  static_assert(!MOVES || PRODUCER_REGISTERS<CONSUMERS, BLOCKS> + CONSUMERS * CONSUMER_REGISTERS<CONSUMERS, BLOCKS> <=
                              (CONSUMERS + 1) * EVEN,
                "registers that warpgroups move are the block's own");
  static_assert(CLUSTER == 1 || !TOGETHER, "one kind of cluster at a time");
  static_assert(BN % (CHUNK * CONSUMERS) == 0, "warpgroups cover the tile");
  static_assert(ROWS % (ROWS > 64 ? 16 : 8) == 0 && ROWS <= 256, "slabs cover it");
  static_assert(!TOGETHER || (SPLITS > 1 && ROWS * PITCH * 4 <= STAGES * (A_BYTES + B_BYTES)), "sums fit the ring");

  extern __shared__ __align__(1024) unsigned char tiles[];
  const unsigned a_tiles = hopper::shared_address(tiles), b_tiles = a_tiles + STAGES * A_BYTES;
  const unsigned slabs = b_tiles + STAGES * B_BYTES;
  Ring<STAGES> ring(slabs + CONSUMERS * SLAB_BYTES);

  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int rank = CLUSTER > 1 ? hopper::cluster_rank() : 0;
  const int tiles_m = (M + ROWS * CLUSTER - 1) / (ROWS * CLUSTER), tiles_n = (N + BN - 1) / BN;
  const auto divide = [&] {
    return Division(tiles_m * tiles_n, (K + DEPTH - 1) / DEPTH, blockIdx.x / CLUSTER, gridDim.x / CLUSTER);
  };
  // Neighbours share columns of B, where A has more rows than a tile.
  const auto locate = [&](int tile, int& row, int& column) {
    row = (tile % tiles_m * CLUSTER + rank) * ROWS;
    column = tile / tiles_m * BN;
  };
  Division work = divide();
  Piece piece{};

  // What the producer does: the next k-block of a piece into the next stage, if that is free.
  int row = 0, column = 0, block = 0;
  const auto begin_piece = [&] {
    if (!work.next(piece)) return false;
    locate(piece.tile, row, column);
    block = piece.from;
    return true;
  };
  const Copier<(HINT > 0)> b_copier;
  const Copier<(HINT > 1)> a_copier;
  const auto fetch = [&] {
    const unsigned barrier = ring.arrived();
    hopper::mbarrier_wait(ring.released(), ring.phase ^ 1);
    hopper::mbarrier_arrive_expect(barrier, A_BYTES + B_BYTES);
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      if (chunk % CLUSTER != rank) continue;
      b_copier.template copy<(CLUSTER > 1)>(b_tiles + ring.stage * B_BYTES + chunk * BOX_BYTES, &b_map, barrier,
                                            column + chunk * CHUNK, block * DEPTH, (1 << CLUSTER) - 1);
    }
    a_copier.template copy<false>(a_tiles + ring.stage * A_BYTES, &a_map, barrier, block * DEPTH, row, 0);
    ++block;
    ring.advance();
  };

  // The first copies of a block on its own need nobody, and start before its threads have met.
  bool more = false;
  if (threadIdx.x == THREADS + 32) hopper::prefetch_map(&c_map);
  if (threadIdx.x == THREADS) {
    ring.init(CONSUMERS * CLUSTER);
    if (CLUSTER == 1) {
      more = begin_piece();
      for (int stage = 0; stage < STAGES && block < piece.to; ++stage) fetch();
    }
  }
  if (CLUSTER > 1) {
    __syncwarp();
    hopper::cluster_arrive_relaxed();
    hopper::cluster_wait();
  } else {
    __syncthreads();
  }

  if (group == CONSUMERS) {
    if constexpr (MOVES) hopper::setmaxnreg_decrease<PRODUCER_REGISTERS<CONSUMERS, BLOCKS>>();
    if (threadIdx.x == THREADS) {
      if (CLUSTER > 1) more = begin_piece();
      for (; more; more = begin_piece()) {
        while (block < piece.to) fetch();
      }
    }
    if (TOGETHER) hopper::cluster_sync();
  } else {
    if constexpr (MOVES) hopper::setmaxnreg_increase<CONSUMER_REGISTERS<CONSUMERS, BLOCKS>>();
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const unsigned slab = slabs + group * SLAB_BYTES;
    const bool by_tma = ldc % 8 == 0;
    const Counters<THREADS, 1> counters{arrived};
    const auto release = [&](unsigned barrier) {
      if (CLUSTER == 1) {
        if (thread == 0) hopper::mbarrier_arrive(barrier);
      } else if (thread < CLUSTER) {
        hopper::mbarrier_arrive_at(barrier, thread);
      }
    };
    const auto slot = [&](int index) {
      return reinterpret_cast<float4*>(partial) + static_cast<size_t>(index * CLUSTER + rank) * (ROWS * BN / 4);
    };

    while (work.next(piece)) {
      float sums[SLABS][ROWS / 2];
      for (block = piece.from; block < piece.to; ++block) {
        hopper::mbarrier_wait(ring.arrived(), ring.phase);
        const unsigned long long a = wgmma::descriptor_k(a_tiles + ring.stage * A_BYTES);
        const unsigned long long b =
            wgmma::descriptor_mn(b_tiles + ring.stage * B_BYTES + group * SLABS * BOX_BYTES, DEPTH);
        wgmma::fence();
#pragma unroll
        for (int k = 0; k < DEPTH / 16; ++k) {
#pragma unroll
          for (int i = 0; i < SLABS; ++i) {
            wgmma::multiply<Kind, wgmma::Major::MN, wgmma::Major::K>(
                sums[i], b + i * (BOX_BYTES / 16) + k * wgmma::STEP_MN, a + k * wgmma::STEP_K,
                k > 0 || block > piece.from);
          }
        }
        wgmma::commit();
        wgmma::wait<1>();
        if (block > piece.from) release(ring.released_before());
        ring.advance();
      }
      wgmma::wait<0>();
      release(ring.released_before());

      locate(piece.tile, row, column);
      const bool takes = !TOGETHER && piece.parts == 2 && piece.part == 0, gives = piece.parts > 1 && !takes;
      if (gives || takes) {
        // In the workspace a thread's sums lie four after each other, and threads side by side.
        float4* const own = TOGETHER ? nullptr
                                     : slot(takes ? Division::slot_of(piece, 1) : piece.slot) +
                                           group * SLABS * (ROWS / 8) * 128 + thread;
        if (takes) {
          counters.await(piece.tile * CLUSTER + rank, 1);
#pragma unroll
          for (int i = 0; i < SLABS; ++i) {
#pragma unroll
            for (int j = 0; j < ROWS / 8; ++j) {
              const float4 more = __ldcg(own + (i * (ROWS / 8) + j) * 128);
              sums[i][4 * j] += more.x, sums[i][4 * j + 1] += more.y;
              sums[i][4 * j + 2] += more.z, sums[i][4 * j + 3] += more.w;
            }
          }
          counters.reset(piece.tile * CLUSTER + rank);
        } else if (!TOGETHER) {
#pragma unroll
          for (int i = 0; i < SLABS; ++i) {
#pragma unroll
            for (int j = 0; j < ROWS / 8; ++j) {
              own[(i * (ROWS / 8) + j) * 128] =
                  make_float4(sums[i][4 * j], sums[i][4 * j + 1], sums[i][4 * j + 2], sums[i][4 * j + 3]);
            }
          }
          counters.count(piece.tile * CLUSTER + rank);
        } else {
          // The ring takes the sums, by rows of C, once all warpgroups of the block are done with what was in it.
          float* const to = reinterpret_cast<float*>(tiles) + wgmma::column_of(0, thread) * PITCH +
                            group * SLABS * CHUNK + wgmma::row_of(0, thread);
          counters.meet();
#pragma unroll
          for (int i = 0; i < SLABS; ++i) {
#pragma unroll
            for (int j = 0; j < ROWS / 2; ++j)
              to[(j / 4 * 8 + j % 2) * PITCH + i * CHUNK + j / 2 % 2 * 8] = sums[i][j];
          }
        }
      }
      if (!gives) {
        // Turned round again by the way into shared memory: rows of 64 columns.
#pragma unroll
        for (int i = 0; i < SLABS; ++i) {
          const int left = column + (group * SLABS + i) * CHUNK;
#pragma unroll
          for (int top = 0; top < ROWS; top += SLAB_ROWS) {
            if (by_tma && thread == 0) hopper::tma_store_wait_read<0>();
            hopper::named_barrier(2 + group, 128);
#pragma unroll
            for (int r = 0; r < SLAB_ROWS; r += 8) {
              const int j = (top + r) / 2, at = r + lane % 8, chunk = warp * 2 + lane / 8 % 2;
              hopper::stmatrix_x2_trans(slab + at * 128 + (chunk ^ at % 8) * 16,
                                        store::pack(sums[i][j], sums[i][j + 1], T()),
                                        store::pack(sums[i][j + 2], sums[i][j + 3], T()));
            }
            if (by_tma) hopper::fence_async_proxy();
            hopper::named_barrier(2 + group, 128);
            if (by_tma) {
              if (thread == 0) {
                hopper::tma_store(&c_map, slab, left, row + top);
                hopper::tma_store_commit();
              }
            } else {
              for (int at = warp * 16; at < SLAB_ROWS; at += 64) {
                store::empty_slab(slab + at * 128, C, ldc, row + top + at, left, min(M, row + top + SLAB_ROWS), N);
              }
            }
          }
        }
      }
    }

    if (by_tma && thread == 0) hopper::tma_store_wait_read<0>();
    if (TOGETHER) hopper::cluster_sync();
    work = divide();
    while ((SPLITS > 2 || SPLITS == 0 || TOGETHER) && work.next(piece)) {
      if (piece.parts <= 2 && !TOGETHER) continue;
      locate(piece.tile, row, column);
      if (!TOGETHER) counters.await(piece.tile * CLUSTER + rank, piece.parts);
      float4* const room = reinterpret_cast<float4*>(tiles + STAGES * (A_BYTES + B_BYTES));
      if constexpr (TOGETHER) {
        add_share<ROWS * BN / 4, THREADS, 1>(
            piece.part, SPLITS, room,
            [&](int part, int quad) {
              const int place = quad / (BN / 4) * PITCH + quad % (BN / 4) * 4;
              return *reinterpret_cast<const float4*>(in_block(reinterpret_cast<const float*>(tiles) + place, part));
            },
            [&](const float4& sum, int quad) {
              store_four(sum, C, ldc, row + quad / (BN / 4), column + quad % (BN / 4) * 4, M, N);
            });
      } else {
        add_share<ROWS * BN / 4, THREADS, 1>(
            piece.part, piece.parts, room,
            [&](int part, int quad) { return __ldcg(slot(Division::slot_of(piece, part)) + quad); },
            [&](const float4& sum, int quad) {
              // Columns of wgmma's are rows of C.
              const int by = quad % 128, block = quad / 128;
              const int r = row + block % (ROWS / 8) * 8 + wgmma::column_of(0, by);
              const int c = column + block / (ROWS / 8) * CHUNK + wgmma::row_of(0, by);
              store_one(sum.x, C, ldc, r, c, M, N);
              store_one(sum.y, C, ldc, r + 1, c, M, N);
              store_one(sum.z, C, ldc, r, c + 8, M, N);
              store_one(sum.w, C, ldc, r + 1, c + 8, M, N);
            });
      }
      if (!TOGETHER) {
        counters.meet();
        counters.leave(piece.tile * CLUSTER + rank, piece.parts);
      }
    }
  }
  // A block's shared memory must last as long as others of the cluster read it or arrive at its barriers.
  if (TOGETHER || CLUSTER > 1) hopper::cluster_sync();
}
