// Rung 11: tensor cores for all multiprocessors, however few tiles C has: split-K and stream-K.
//
// Adds to rung 9: a tile's k-blocks may belong to several blocks. Whole tiles waste what is left of the last wave:
// 133 tiles on 132 multiprocessors take as long as 264, and a 64×64 product over K = 65536 runs on one of them. Here
// the k-blocks of the tiles that do not fill a wave (or of all tiles) are one line, cut into equal runs, one a block.
//
// SPLITS 0 is stream-K, WAVES says which tiles go whole; SPLITS s cuts each tile into s blocks of its own, 1 being
// the plain kernel. Where two blocks share a tile the one that has its first k-block waits for the other's sums, which
// that one computed first, and stores; where there are more, each adds up a share of the tile when all are done.
// streams.cuh has the division and the adding up. TOGETHER 1: the blocks that share a tile are a cluster and read
// each other's sums from shared memory, which spares the way through a workspace. TOGETHER 2: they send each other what
// they need, and keep in registers what nobody else does. TOGETHER 4 or 8: clusters of so many do that, and what they
// come to goes through the workspace, a fourth or an eighth of what parts on their own would leave there.
//
// Odd leading dimensions are dealt with as in rung 14: the operand is copied first.
//
// CLUSTER_M or CLUSTER_N blocks work on neighbouring tiles in step, and each loads a part of what they share for all.
// Before they have met, nothing can be sent to another: the first AHEAD stages each loads for itself alone, for the
// meeting takes a good part of what the first copy does.
//
// A block's one tile leaves when nobody multiplies any more. STORE 3 spares it the wait for a slab that TMA still
// reads: every slab has a place of its own, where the rows of A were.
//
// On an H200 with a cold second-level cache, bfloat16: 64×64×65536 in 11.1 µs, 1.11 times as fast as cuBLASLt's best;
// 256×4096×4096 in 18.3 µs, 1.12 times; 1023³, with both operands copied, in 16.8 µs, 1.66 times.
#include "../../common/cluster.cuh"
#include "operand.cuh"
#include "padded.cuh"
#include "streams.cuh"

// A transposed operand lies in memory as K×M, or N×K. `nowhere` is what c_map is of where TMA cannot write rows of C.
template <typename T, bool TRANSPOSE_A, bool TRANSPOSE_B, int BM, int BN, int BK, int CONSUMERS, int STAGES,
          int CLUSTER_M, int CLUSTER_N, int GROUP, int SPLITS, int TOGETHER, int WAVES, int HINT, int STORE,
          int AHEAD, int BLOCKS>
__global__ void __launch_bounds__(CONSUMERS * 128 + 128, BLOCKS)
    gemm_wgmma_stream_k(const T* __restrict__ A, const T* __restrict__ B, T* __restrict__ C, T* a_copy, T* b_copy,
                        unsigned* met, float* partial, unsigned* arrived, const T* nowhere, int M, int N, int K,
                        int lda, int ldb, int ldc, const __grid_constant__ hopper::TensorMap a_map,
                        const __grid_constant__ hopper::TensorMap b_map,
                        const __grid_constant__ hopper::TensorMap c_map) {
  using namespace streams;
  using Kind = typename wgmma::OfElement<T>::Kind;
  constexpr wgmma::Major A_MAJOR = TRANSPOSE_A ? wgmma::Major::MN : wgmma::Major::K;
  constexpr wgmma::Major B_MAJOR = TRANSPOSE_B ? wgmma::Major::K : wgmma::Major::MN;
  constexpr int CLUSTER = CLUSTER_M * CLUSTER_N;
  using ATile = OperandTile<A_MAJOR, BM, BK, CLUSTER_N>;
  using BTile = OperandTile<B_MAJOR, BN, BK, CLUSTER_M>;
  using Division = Work<SPLITS, WAVES>;
  constexpr bool POOLED = TOGETHER == 1, SENT = TOGETHER >= 2, PASSED_ON = TOGETHER > 2;
  // Parts that send each other their sums, and how many come to the workspace for it.
  constexpr int PARTY = PASSED_ON ? TOGETHER : SENT ? SPLITS : 1;
  constexpr int THREADS = CONSUMERS * 128, SLABS = BM / CONSUMERS / 64;
  // Rows of sums in shared memory lie apart so that eight of them touch all banks.
  constexpr int PITCH = POOLED ? BN + 8 : BN;
  // Where a thread's even share of the registers holds the sums, it stays so.
  constexpr int EVEN = 65536 / ((THREADS + 128) * BLOCKS) / 8 * 8;
  constexpr bool MOVES = SLABS * BN / 2 + 100 > EVEN;
  // A block of one piece knows which stages nobody fills again, and tells nobody that they are free.
  constexpr bool ENDS = SPLITS > 0;
  // Stages that are filled before the block's threads, or the cluster's, have met.
  constexpr int EARLY = ENDS && CLUSTER == 1 ? STAGES : AHEAD;
  constexpr bool APART = STORE == store::IN_RING;
  static_assert(BM % (64 * CONSUMERS) == 0 && BN <= 256, "warpgroups cover the tile");
  static_assert(!TOGETHER || SPLITS > 1, "what is cut has parts");
  static_assert(AHEAD == 0 || (ENDS && CLUSTER > 1 && AHEAD <= STAGES), "the first stages of a block of one piece");
  static_assert(!APART || (SPLITS == 1 && STAGES * BK >= BN), "the ring has a place for every slab of the last tile");
  static_assert(!POOLED || BM * PITCH * 4 <= STAGES * (ATile::BYTES + BTile::BYTES), "sums fit the ring");
  // Columns that each of the parts finishes where sums are sent, and what it gets for it.
  constexpr int OWN = BN / PARTY;
  constexpr unsigned INBOX_BYTES = (PARTY - 1) * BM * OWN * 4;
  static_assert(OWN % 64 == 0 || !SENT || PASSED_ON, "parts have whole slabs");
  static_assert(!PASSED_ON || (SPLITS % PARTY == 0 && SPLITS > PARTY && OWN % 8 == 0), "several whole clusters a tile");

  // Rows that TMA cannot read are copied to where it can, by all blocks, before any of them computes.
  if (lda % 8 != 0 || ldb % 8 != 0) {
    copy_padded_operands<T, TRANSPOSE_A, TRANSPOSE_B, (EVEN < 160 ? 4 : 8)>(A, B, a_copy, b_copy, met, M, N, K, lda,
                                                                            ldb);
  }

  extern __shared__ __align__(1024) unsigned char tiles[];
  const unsigned a_tiles = hopper::shared_address(tiles), b_tiles = a_tiles + STAGES * ATile::BYTES;
  const unsigned inbox = b_tiles + STAGES * BTile::BYTES, slabs = inbox + INBOX_BYTES;
  Ring<STAGES> ring(slabs + CONSUMERS * 4 * store::SLAB_BYTES);
  const unsigned received = ring.barriers + ring.BYTES;

  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  // Blocks of a cluster that are in step follow each other in it.
  const int in_cluster = CLUSTER > 1 || TOGETHER ? hopper::cluster_rank() : 0;
  const int rank = in_cluster % CLUSTER, leader = in_cluster - rank;
  const int rank_m = rank / CLUSTER_N, rank_n = rank % CLUSTER_N;
  const int tiles_m = (M + BM * CLUSTER_M - 1) / (BM * CLUSTER_M);
  const int tiles_n = (N + BN * CLUSTER_N - 1) / (BN * CLUSTER_N);
  const auto divide = [&] {
    return Division(tiles_m * tiles_n, (K + BK - 1) / BK, blockIdx.x / CLUSTER, gridDim.x / CLUSTER);
  };
  const auto locate = [&](int tile, int& row, int& column) {
    if (tiles_m <= GROUP) {  // one band
      unravel(tile, tiles_m, column, row);
    } else {
      tile_order::locate<GROUP, tile_order::BY_ROWS>(tile, tiles_m, tiles_n, row, column);
    }
    row = (row * CLUSTER_M + rank_m) * BM;
    column = (column * CLUSTER_N + rank_n) * BN;
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
  const Copier<HINT == 1> copier;
  const auto fill = [&](const auto& boxes) {
    const unsigned barrier = ring.arrived();
    hopper::mbarrier_wait(ring.released(), ring.phase ^ 1);
    hopper::mbarrier_arrive_expect(barrier, ATile::BYTES + BTile::BYTES);
    boxes(a_tiles + ring.stage * ATile::BYTES, b_tiles + ring.stage * BTile::BYTES, barrier);
    ++block;
    ring.advance();
  };
  const auto fetch = [&] {
    fill([&](unsigned a, unsigned b, unsigned barrier) {
      ATile::fetch(a, row, block * BK, rank_n, [&](unsigned to, int x, int y) {
        copier.template copy<(CLUSTER_N > 1)>(to, &a_map, barrier, x, y,
                                              ((1 << CLUSTER_N) - 1) << (leader + rank_m * CLUSTER_N));
      });
      BTile::fetch(b, column, block * BK, rank_m, [&](unsigned to, int x, int y) {
        constexpr int COLUMN = CLUSTER_M == 1 ? 1 : 1 | 1 << CLUSTER_N;
        copier.template copy<(CLUSTER_M > 1)>(to, &b_map, barrier, x, y, COLUMN << (leader + rank_n));
      });
    });
  };
  const auto fetch_alone = [&] {
    fill([&](unsigned a, unsigned b, unsigned barrier) {
#pragma unroll
      for (int share = 0; share < CLUSTER_N; ++share) {
        ATile::fetch(a, row, block * BK, share, [&](unsigned to, int x, int y) {
          copier.template copy<false>(to, &a_map, barrier, x, y, 0);
        });
      }
#pragma unroll
      for (int share = 0; share < CLUSTER_M; ++share) {
        BTile::fetch(b, column, block * BK, share, [&](unsigned to, int x, int y) {
          copier.template copy<false>(to, &b_map, barrier, x, y, 0);
        });
      }
    });
  };

  // The first copies of a block on its own need nobody, and start before its threads have met. With more than one
  // piece, what this takes of registers is too much.
  bool more = false;
  if (threadIdx.x == THREADS + 32) hopper::prefetch_map(&c_map);
  if (threadIdx.x == THREADS + 64 && CLUSTER > 1) {
    hopper::prefetch_map(&a_map);
    hopper::prefetch_map(&b_map);
  }
  if (threadIdx.x == THREADS) {
    if (SENT) {
      hopper::mbarrier_init(received, 1);
      hopper::mbarrier_arrive_expect(received, INBOX_BYTES);
    }
    ring.init(CONSUMERS * CLUSTER);
    if (EARLY > 0) {
      more = begin_piece();
      for (int stage = 0; stage < EARLY && block < piece.to; ++stage) fetch_alone();
    }
  }
  if (CLUSTER > 1 || SENT) {
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
    if (POOLED) hopper::cluster_sync();
  } else {
    if constexpr (MOVES) hopper::setmaxnreg_increase<CONSUMER_REGISTERS<CONSUMERS, BLOCKS>>();
    const int thread = threadIdx.x % 128;
    const unsigned slab = slabs + threadIdx.x / 32 * store::SLAB_BYTES;
    const bool aligned = ldc % 8 == 0;
    const Counters<THREADS, 1> counters{arrived};
    const auto release = [&](unsigned barrier) {
      if (CLUSTER == 1) {
        if (thread == 0) hopper::mbarrier_arrive(barrier);
      } else if (thread < CLUSTER) {
        hopper::mbarrier_arrive_at(barrier, leader + thread);
      }
    };
    const auto slot = [&](int index) {
      return reinterpret_cast<float4*>(partial) + static_cast<size_t>(index * CLUSTER + rank) * (BM * OWN / 4);
    };
    // Of those that have sums of the same columns of a tile, one of each cluster.
    const auto counter_of = [&](const Piece& piece) {
      return (piece.tile * CLUSTER + rank) * PARTY + piece.part % PARTY;
    };

    // Each part finishes OWN columns of the tile. It sends the others' sums to them, to a place of its own in their
    // shared memory, and adds up what it got, in the order of K.
    [[maybe_unused]] const auto send_and_finish = [&](const float(&sums)[SLABS][BN / 2]) {
      const auto place = [&](int from, int i, int q) {
        return inbox + (((from * CONSUMERS + group) * SLABS + i) * (OWN / 8) + q) * 2048 + thread * 16;
      };
      const int member = piece.part % PARTY;
      // The next one first, so that not all send to the same one at a time.
#pragma unroll 1
      for (int ahead = 1; ahead < PARTY; ++ahead) {
        const int receiver = (member + ahead) % PARTY;
#pragma unroll
        for (int other = 0; other < PARTY; ++other) {
          if (other != receiver) continue;
          const unsigned to = other * CLUSTER + rank, barrier = hopper::shared_address_in(received, to);
          const unsigned there = hopper::shared_address_in(place(member - (member > other), 0, 0), to);
#pragma unroll
          for (int i = 0; i < SLABS; ++i) {
#pragma unroll
            for (int q = 0; q < OWN / 8; ++q) {
              const int j = other * OWN / 2 + 4 * q;
              send(there + (i * (OWN / 8) + q) * 2048, sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3],
                   barrier);
            }
          }
        }
      }
      int row, column;
      locate(piece.tile, row, column);
      hopper::mbarrier_wait_cluster(received, 0);
#pragma unroll
      for (int part = 0; part < PARTY; ++part) {
        if (part != member) continue;
#pragma unroll
        for (int i = 0; i < SLABS; ++i) {
          float own[OWN / 2];
#pragma unroll
          for (int q = 0; q < OWN / 8; ++q) {
            float* const four = &own[4 * q];
#pragma unroll
            for (int from = 0; from < PARTY; ++from) {
              float more[4];
              if (from == part) {
#pragma unroll
                for (int v = 0; v < 4; ++v) more[v] = sums[i][part * OWN / 2 + 4 * q + v];
              } else {
                asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                             : "=f"(more[0]), "=f"(more[1]), "=f"(more[2]), "=f"(more[3])
                             : "r"(place(from - (from > part), i, q)));
              }
#pragma unroll
              for (int v = 0; v < 4; ++v) four[v] = from == 0 ? more[v] : four[v] + more[v];
            }
          }
          if constexpr (PASSED_ON) {
            float4* const to = slot(piece.slot) + (group * SLABS + i) * (OWN / 8) * 128 + thread;
#pragma unroll
            for (int q = 0; q < OWN / 8; ++q) {
              to[q * 128] = make_float4(own[4 * q], own[4 * q + 1], own[4 * q + 2], own[4 * q + 3]);
            }
            continue;
          }
          const int top = row + (group * SLABS + i) * 64, left = column + part * OWN;
          if (STORE == store::THROUGH && aligned) {
            store_wide(own, slab, C, ldc, top, left, M, N);
          } else if (aligned) {
            store::through<T, store::TMA, 1>(own, slab, &c_map, C, ldc, top, left, M, N);
          } else {
            store::through<T, store::THROUGH, 1>(own, slab, &c_map, C, ldc, top, left, M, N);
          }
        }
      }
      if (PASSED_ON) counters.count(counter_of(piece));
    };

    for (Division work = divide(); work.next(piece);) {
      float sums[SLABS][BN / 2];
      int row, column;
      if (ENDS) locate(piece.tile, row, column);  // while the first copies are under way; else registers are dear
      for (int block = piece.from; block < piece.to; ++block) {
        hopper::mbarrier_wait(ring.arrived(), ring.phase);
        const unsigned long long a = ATile::descriptor(a_tiles + ring.stage * ATile::BYTES, group * SLABS * 64);
        const unsigned long long b = BTile::descriptor(b_tiles + ring.stage * BTile::BYTES);
        wgmma::fence();
#pragma unroll
        for (int k = 0; k < BK / Kind::DEPTH; ++k) {
#pragma unroll
          for (int i = 0; i < SLABS; ++i) {
            wgmma::multiply<Kind, A_MAJOR, B_MAJOR>(sums[i], a + i * ATile::NEXT_64 + ATile::step(k),
                                                    b + BTile::step(k), k > 0 || block > piece.from);
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

      const int tile = piece.tile * CLUSTER + rank;
      // Of a tile that two share, the first part adds the other's sums to its own.
      const bool takes = !TOGETHER && piece.parts == 2 && piece.part == 0, gives = piece.parts > 1 && !takes;
      if constexpr (SENT) {
        send_and_finish(sums);
        continue;
      }
      if (gives || takes) {
        // In the workspace a thread's sums lie four after each other, and threads side by side.
        float4* const own = TOGETHER ? nullptr
                                     : slot(takes ? Division::slot_of(piece, 1) : piece.slot) +
                                           group * SLABS * (BN / 8) * 128 + thread;
        if (takes) {
          counters.await(tile, 1);
#pragma unroll
          for (int i = 0; i < SLABS; ++i) {
#pragma unroll
            for (int j = 0; j < BN / 8; ++j) {
              const float4 more = __ldcg(own + (i * (BN / 8) + j) * 128);
              sums[i][4 * j] += more.x, sums[i][4 * j + 1] += more.y;
              sums[i][4 * j + 2] += more.z, sums[i][4 * j + 3] += more.w;
            }
          }
          counters.reset(tile);
        } else if (!TOGETHER) {
#pragma unroll
          for (int i = 0; i < SLABS; ++i) {
#pragma unroll
            for (int j = 0; j < BN / 8; ++j) {
              own[(i * (BN / 8) + j) * 128] =
                  make_float4(sums[i][4 * j], sums[i][4 * j + 1], sums[i][4 * j + 2], sums[i][4 * j + 3]);
            }
          }
          counters.count(tile);
        } else {
          // The ring takes the sums, row by row, once all warpgroups of the block are done with what was in it.
          float* const to = reinterpret_cast<float*>(tiles) +
                            (group * SLABS * 64 + wgmma::row_of(0, thread)) * PITCH + wgmma::column_of(0, thread);
          counters.meet();
#pragma unroll
          for (int i = 0; i < SLABS; ++i) {
#pragma unroll
            for (int j = 0; j < BN / 2; j += 2) {
              *reinterpret_cast<float2*>(to + (i * 64 + j / 2 % 2 * 8) * PITCH + j / 4 * 8) =
                  make_float2(sums[i][j], sums[i][j + 1]);
            }
          }
        }
      }
      if (!gives) {
        if (APART && aligned) {
          hopper::named_barrier(2 + group, 128);  // all four warps are done with the warpgroup's rows of A
#pragma unroll
          for (int i = 0; i < SLABS; ++i) {
            const int first = (group * SLABS + i) * 64;
            unsigned pairs[BN / 4];
            store::round_all<T>(pairs, sums[i]);
#pragma unroll
            for (int s = 0; s < BN / 64; ++s) {
              const unsigned place = ATile::own_box(a_tiles, first, s) + thread / 32 * store::SLAB_BYTES;
              store::one_slab<T, store::TMA>(pairs, s, place, &c_map, C, ldc, row + first, column, M, N);
            }
          }
        } else {
#pragma unroll
          for (int i = 0; i < SLABS; ++i) {
            const int top = row + (group * SLABS + i) * 64;
            if (STORE == store::THROUGH && aligned) {
              store_wide(sums[i], slab, C, ldc, top, column, M, N);
            } else if (STORE == store::TMA && aligned) {
              store::through<T, store::TMA, 1>(sums[i], slab, &c_map, C, ldc, top, column, M, N);
            } else {
              store::through<T, store::THROUGH, 1>(sums[i], slab, &c_map, C, ldc, top, column, M, N);
            }
          }
        }
      }
    }

    if (STORE != store::THROUGH && aligned && threadIdx.x % 32 == 0) hopper::tma_store_wait_read<0>();
    if (POOLED) hopper::cluster_sync();
    Division again = divide();
    while ((SPLITS > 2 || SPLITS == 0 || POOLED) && (!SENT || PASSED_ON) && again.next(piece)) {
      if (piece.parts <= 2 && !POOLED) continue;
      locate(piece.tile, row, column);
      // What this part adds up a share of are the columns of its place in a cluster.
      const int counter = counter_of(piece), member = piece.part % PARTY;
      const int parts = PASSED_ON ? SPLITS / PARTY : piece.parts;
      column += member * OWN;
      if (!POOLED) counters.await(counter, parts);
      float4* const room = reinterpret_cast<float4*>(tiles + STAGES * (ATile::BYTES + BTile::BYTES));
      if constexpr (POOLED) {
        add_share<BM * BN / 4, THREADS, 1>(
            piece.part, SPLITS, room,
            [&](int part, int quad) {
              const int place = quad / (BN / 4) * PITCH + quad % (BN / 4) * 4;
              return *reinterpret_cast<const float4*>(
                  in_block(reinterpret_cast<const float*>(tiles) + place, part * CLUSTER + rank));
            },
            [&](const float4& sum, int quad) {
              store_four(sum, C, ldc, row + quad / (BN / 4), column + quad % (BN / 4) * 4, M, N);
            });
      } else {
        const auto bring = [&](int part, int quad) {
          return __ldcg(slot(Division::slot_of(piece, part * PARTY + member)) + quad);
        };
        const auto put = [&](const float4& sum, int quad) {
          const int by = quad % 128, block = quad / 128;
          const int r = row + block / (OWN / 8) * 64 + wgmma::row_of(0, by);
          const int c = column + block % (OWN / 8) * 8 + wgmma::column_of(0, by);
          store_two(sum.x, sum.y, C, ldc, r, c, M, N);
          store_two(sum.z, sum.w, C, ldc, r + 8, c, M, N);
        };
        constexpr int PARTS = PASSED_ON ? SPLITS / PARTY : 0;
        if constexpr (PASSED_ON && BM * OWN / 4 > PARTS * (THREADS / 2)) {
          add_share_at_once<BM * OWN / 4, THREADS, PARTS>(piece.part / PARTY, bring, put);
        } else {
          add_share<BM * OWN / 4, THREADS, 1>(piece.part / PARTY, parts, room, bring, put);
        }
      }
      if (!POOLED) {
        counters.meet();
        counters.leave(counter, parts);
      }
    }
  }
  // A block's shared memory must last as long as others of the cluster read it or arrive at its barriers.
  if (POOLED || (CLUSTER > 1 && !ENDS)) hopper::cluster_sync();
}
