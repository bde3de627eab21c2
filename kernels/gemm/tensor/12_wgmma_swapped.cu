// Rung 12: few rows of A, or a number that 64 does not cut well: the product is computed as Cᵀ = BᵀAᵀ.
//
// Adds to rung 11: a product of wgmma has 64 rows whatever is asked, but any multiple of 8 columns. With 16 rows
// of A, three quarters of the multiplications and of what is loaded for them would be for nothing. Turned round, B's
// columns are the 64, and ROWS is what A has, rounded up to 8. B lies as it did: row-major B is M-major Bᵀ, which
// wgmma reads as it is. What decides is how fast B comes from memory, so K is cut among enough blocks to
// keep all of the memory busy (rung 11 says how), and the ring is deep.
//
// With more rows the same freedom fits the tiles to the device: 1536² are 144 tiles of 128×128, and a second wave of
// them for 12, but 128 of 96×192. CLUSTER blocks have tiles below one another and load parts of B's tile for all, but
// for the first AHEAD stages, which each loads for itself before they have met. STORE 3: slabs of a block's one tile
// leave through places of their own in the ring, where columns of B were (rung 11 says why, of both).
//
// On an H200 with a cold second-level cache, bfloat16: 16×4096×4096 in 13.0 µs, which is 2.6 TB/s of B, and 1.23 times
// as fast as cuBLASLt's best; 128×4096×4096 in 15.0 µs, 1.14 times.
#include "../../common/cluster.cuh"
#include "streams.cuh"

// `nowhere` is what c_map is of where TMA cannot write rows of C.
template <typename T, int ROWS, int BN, int CONSUMERS, int STAGES, int CLUSTER, int SPLITS, int TOGETHER, int WAVES,
          int HINT, int STORE, int AHEAD, int BLOCKS>
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
  // A block of one piece knows which stages nobody fills again, and tells nobody that they are free.
  constexpr bool ENDS = SPLITS > 0;
  // Stages that are filled before the block's threads, or the cluster's, have met.
  constexpr int EARLY = CLUSTER == 1 ? STAGES : AHEAD;
  constexpr bool APART = STORE == store::IN_RING;
  constexpr int EVEN = 65536 / ((THREADS + 128) * BLOCKS) / 8 * 8;
  constexpr bool MOVES = SLABS * ROWS / 2 + 100 > EVEN;
  // A block begins with so many a thread: consumers that ask for more than the producer leaves wait without end.
  static_assert(!MOVES || PRODUCER_REGISTERS<CONSUMERS, BLOCKS> + CONSUMERS * CONSUMER_REGISTERS<CONSUMERS, BLOCKS> <=
                              (CONSUMERS + 1) * EVEN,
                "registers that warpgroups move are the block's own");
  static_assert(CLUSTER == 1 || !TOGETHER, "one kind of cluster at a time");
  static_assert(AHEAD == 0 || (ENDS && CLUSTER > 1 && AHEAD <= STAGES), "the first stages of a block of one piece");
  static_assert(!APART || (SPLITS == 1 && SLAB_ROWS <= 64 && ROWS / SLAB_ROWS <= STAGES), "the ring takes all slabs");
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
    unravel(tile, tiles_m, column, row);
    row = (row * CLUSTER + rank) * ROWS;
    column *= BN;
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
  const auto fill = [&](const auto& boxes_of_b) {
    const unsigned barrier = ring.arrived();
    hopper::mbarrier_wait(ring.released(), ring.phase ^ 1);
    hopper::mbarrier_arrive_expect(barrier, A_BYTES + B_BYTES);
    boxes_of_b(b_tiles + ring.stage * B_BYTES, barrier);
    a_copier.template copy<false>(a_tiles + ring.stage * A_BYTES, &a_map, barrier, block * DEPTH, row, 0);
    ++block;
    ring.advance();
  };
  const auto fetch = [&] {
    fill([&](unsigned to, unsigned barrier) {
#pragma unroll
      for (int chunk = 0; chunk < CHUNKS; ++chunk) {
        if (chunk % CLUSTER != rank) continue;
        b_copier.template copy<(CLUSTER > 1)>(to + chunk * BOX_BYTES, &b_map, barrier, column + chunk * CHUNK,
                                              block * DEPTH, (1 << CLUSTER) - 1);
      }
    });
  };
  const auto fetch_alone = [&] {
    fill([&](unsigned to, unsigned barrier) {
#pragma unroll
      for (int chunk = 0; chunk < CHUNKS; ++chunk) {
        b_copier.template copy<false>(to + chunk * BOX_BYTES, &b_map, barrier, column + chunk * CHUNK, block * DEPTH,
                                      0);
      }
    });
  };

  // The first copies of a block on its own need nobody, and start before its threads have met.
  bool more = false;
  if (threadIdx.x == THREADS + 32) hopper::prefetch_map(&c_map);
  if (threadIdx.x == THREADS + 64 && CLUSTER > 1) {
    hopper::prefetch_map(&b_map);
    hopper::prefetch_map(&a_map);
  }
  if (threadIdx.x == THREADS) {
    ring.init(CONSUMERS * CLUSTER);
    if (EARLY > 0) {
      more = begin_piece();
      for (int stage = 0; stage < EARLY && block < piece.to; ++stage) fetch_alone();
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
      if (EARLY == 0) more = begin_piece();
      for (; more; more = begin_piece()) {
        while (block < piece.to) fetch();
      }
    }
    if (TOGETHER) hopper::cluster_sync();
  } else {
    if constexpr (MOVES) hopper::setmaxnreg_increase<CONSUMER_REGISTERS<CONSUMERS, BLOCKS>>();
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
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
      if (ENDS) locate(piece.tile, row, column);  // while the first copies are under way; else registers are dear
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
        if (block > piece.from && (!ENDS || block - 1 + STAGES < piece.to)) release(ring.released_before());
        ring.advance();
      }
      wgmma::wait<0>();
      if (!ENDS) {
        release(ring.released_before());
        locate(piece.tile, row, column);
      }

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
        // Turned round again by the way into shared memory: rows of 64 columns. One loop for each way to C, or the
        // instructions of the longer one would lie between those of the other's slabs.
        const auto through_slabs = [&](const auto& empty) {
#pragma unroll
          for (int i = 0; i < SLABS; ++i) {
            const int left = column + (group * SLABS + i) * CHUNK;
#pragma unroll
            for (int top = 0; top < ROWS; top += SLAB_ROWS) {
              const unsigned slab = APART ? b_tiles + top / SLAB_ROWS * B_BYTES + (group * SLABS + i) * BOX_BYTES
                                          : slabs + group * SLAB_BYTES;
              if (!APART && thread == 0) hopper::tma_store_wait_read<0>();
              // Nothing reads the slab any more: no copy, or no products of the warpgroup.
              if (!APART || (i == 0 && top == 0)) hopper::named_barrier(2 + group, 128);
#pragma unroll
              for (int r = 0; r < SLAB_ROWS; r += 8) {
                const int j = (top + r) / 2, at = r + lane % 8, chunk = warp * 2 + lane / 8 % 2;
                hopper::stmatrix_x2_trans(slab + at * 128 + (chunk ^ at % 8) * 16,
                                          store::pack(sums[i][j], sums[i][j + 1], T()),
                                          store::pack(sums[i][j + 2], sums[i][j + 3], T()));
              }
              hopper::fence_async_proxy();
              hopper::named_barrier(2 + group, 128);
              empty(slab, row + top, left);
            }
          }
        };
        if (by_tma) {
          through_slabs([&](unsigned slab, int top, int left) {
            if (thread != 0) return;
            hopper::tma_store(&c_map, slab, left, top);
            hopper::tma_store_commit();
          });
        } else {
          through_slabs([&](unsigned slab, int top, int left) {
            for (int at = warp * 16; at < SLAB_ROWS; at += 64) {
              store::empty_slab(slab + at * 128, C, ldc, top + at, left, min(M, top + SLAB_ROWS), N);
            }
          });
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
  if (TOGETHER || (CLUSTER > 1 && !ENDS)) hopper::cluster_sync();
}
