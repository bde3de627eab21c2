// Rung 16: tf32 whose factors lie as they come, without a copy.
//
// Adds to rung 15: wgmma takes its first factor from registers too, where threads can put it together in any order. So
// the factor with rows of K, B of layout nn, goes from shared memory through registers, turned around on the way,
// and the product is the transposed one, Cᵀ = Bᵀ·Aᵀ. Aᵀ is then the second factor, which lies along K as it must. In
// layout tt it is A that has rows of K, and nothing is transposed. The registers of one k-block are loaded while the
// tensor cores work on the one before it.
//
// X stands for the factor from registers, K rows of P elements, and Y for the other one, Q rows of K elements: P and Q
// are N and M of nn, M and N of tt. A warp's load of X takes 8 neighbours of 4 rows, which TMA's swizzle spreads over
// half of the banks: two passes, where a product of 64×256 takes 128 clocks.
//
// On an H200 with a cold second-level cache: 401 TFLOP/s at 4096³ in layout nn and 406 in tt, 410 at 8192³, where the
// better of cuBLAS and cuBLASLt has 400, 403 and 411, and rung 15 with its copy 366 in nn.
#include "k_major.cuh"
#include "ring.cuh"
#include "tile_order.cuh"

namespace wgmma_turned {

constexpr int DEPTH = 32, STEPS = 4, BOX = 32;  // of K a k-block, of products in it, of P a box of X

// The sums of 64 rows of P to the columns of C: eight lanes have eight neighbours of a row of C, a whole sector.
template <int Sums>
__device__ __forceinline__ void store_turned(const float (&sums)[Sums], float* C, int ldc, int p0, int q0, int P,
                                             int Q) {
  const int thread = threadIdx.x % 128;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int p = p0 + wgmma::row_of(2 * half, thread);
    if (p >= P) continue;
    float* to = C + static_cast<size_t>(q0 + wgmma::column_of(0, thread)) * ldc + p;
    const int left = Q - q0 - wgmma::column_of(0, thread);
#pragma unroll
    for (int i = 0; i < Sums; i += 4) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        if (i * 2 + n < left) to[static_cast<size_t>(i * 2 + n) * ldc] = sums[i + 2 * half + n];
      }
    }
  }
}

}  // namespace wgmma_turned

template <int TRANSPOSED, int BP, int BQ, int CONSUMERS, int STAGES, int CLUSTER_P, int CLUSTER_Q, int GROUP, int ORDER>
__global__ void __launch_bounds__(CONSUMERS * 128 + 128, 1)
    gemm_wgmma_turned(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N,
                      int K, int lda, int ldb, int ldc, const __grid_constant__ hopper::TensorMap x_map,
                      const __grid_constant__ hopper::TensorMap y_map) {
  using namespace wgmma_turned;
  constexpr int PARTS = BP / (64 * CONSUMERS), CLUSTER = CLUSTER_P * CLUSTER_Q, BOXES = BP / BOX;
  constexpr unsigned ROW_BYTES = 128, BOX_BYTES = DEPTH * ROW_BYTES;
  constexpr unsigned X_BYTES = BOXES * BOX_BYTES, Y_BYTES = BQ * ROW_BYTES;
  static_assert(BP % (64 * CONSUMERS) == 0, "parts cover the tile");
  static_assert(BOXES % CLUSTER_Q == 0 && BQ % (8 * CLUSTER_P) == 0, "blocks of a cluster fetch equal shares");
  const int P = TRANSPOSED ? M : N, Q = TRANSPOSED ? N : M;

  extern __shared__ unsigned char memory[];
  const unsigned x_tiles = (hopper::shared_address(memory) + 1023) & ~1023u;
  const unsigned y_tiles = x_tiles + STAGES * X_BYTES;
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);

  Ring<STAGES> ring(y_tiles + STAGES * Y_BYTES);
  if (threadIdx.x == 0) ring.init(CONSUMERS * (CLUSTER_P + CLUSTER_Q - 1));
  const unsigned rank = CLUSTER > 1 ? hopper::cluster_rank() : 0;
  const int rank_p = rank / CLUSTER_Q, rank_q = rank % CLUSTER_Q;
  if (CLUSTER > 1) {
    hopper::cluster_sync();
  } else {
    __syncthreads();
  }

  const int rows = (P + BP * CLUSTER_P - 1) / (BP * CLUSTER_P), columns = (Q + BQ * CLUSTER_Q - 1) / (BQ * CLUSTER_Q);
  const int blocks_k = (K + DEPTH - 1) / DEPTH, step = gridDim.x / CLUSTER;
  const auto locate = [&](int tile, int& p, int& q) {
    tile_order::locate<GROUP, ORDER>(tile, rows, columns, p, q);
    p = (p * CLUSTER_P + rank_p) * BP;
    q = (q * CLUSTER_Q + rank_q) * BQ;
  };

  if (warpgroup == 0) {
    hopper::setmaxnreg_decrease<PRODUCER_REGISTERS<CONSUMERS>>();
    if (threadIdx.x == 0) {
      constexpr int SHARE = BQ / CLUSTER_P;  // rows of Y that this block fetches
      const unsigned short x_blocks = ((1 << CLUSTER_Q) - 1) << (rank_p * CLUSTER_Q);
      unsigned short y_blocks = 0;
#pragma unroll
      for (int i = 0; i < CLUSTER_P; ++i) y_blocks |= 1 << (i * CLUSTER_Q + rank_q);
      const auto load = [&](unsigned to, const hopper::TensorMap* map, int x, int y, bool shared,
                            unsigned short blocks) {
        shared ? hopper::tma_load_multicast(to, map, ring.arrived(), x, y, blocks)
               : hopper::tma_load(to, map, ring.arrived(), x, y);
      };
      for (int tile = blockIdx.x / CLUSTER; tile < rows * columns; tile += step) {
        int p, q;
        locate(tile, p, q);
        for (int block = 0; block < blocks_k; ++block, ring.advance()) {
          hopper::mbarrier_wait(ring.released(), ring.phase ^ 1);
          hopper::mbarrier_arrive_expect(ring.arrived(), X_BYTES + Y_BYTES);
          load(y_tiles + ring.stage * Y_BYTES + rank_p * SHARE * ROW_BYTES, &y_map, block * DEPTH, q + rank_p * SHARE,
               CLUSTER_P > 1, y_blocks);
#pragma unroll
          for (int i = 0; i < BOXES / CLUSTER_Q; ++i) {
            const int box = i * CLUSTER_Q + rank_q;
            load(x_tiles + ring.stage * X_BYTES + box * BOX_BYTES, &x_map, p + box * BOX, block * DEPTH, CLUSTER_Q > 1,
                 x_blocks);
          }
        }
      }
    }
  } else {
    hopper::setmaxnreg_increase<CONSUMER_REGISTERS<CONSUMERS>>();
    const int thread = threadIdx.x % 128, lane = thread % 32, first = (warpgroup - 1) * PARTS * 64;
    const bool tells = thread < CLUSTER && (thread / CLUSTER_Q == rank_p || thread % CLUSTER_Q == rank_q);
    const auto release = [&](unsigned barrier) {
      if (CLUSTER > 1) {
        if (tells) hopper::mbarrier_arrive_at(barrier, thread);
      } else if (thread == 0) {
        hopper::mbarrier_arrive(barrier);
      }
    };
    // "Register Fragments" of the first factor, 64×8: word w of a lane is row lane / 4 + 8·(w % 2) of its warp's 16, and
    // lane % 4 + 4·(w / 2) along K. Unit u of 16 bytes of row k of a box lies at u ^ (k % 8).
    unsigned place[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const int p = first + thread / 32 * 16 + lane / 4 + w % 2 * 8, k = lane % 4 + w / 2 * 4;
      place[w] = x_tiles + p / BOX * BOX_BYTES + k * ROW_BYTES + ((p % BOX / 4) ^ k) * 16 + p % 4 * 4;
    }
    for (int tile = blockIdx.x / CLUSTER; tile < rows * columns; tile += step) {
      float sums[PARTS][BQ / 2];
      const auto multiply = [&](unsigned (&x)[STEPS][PARTS][4], bool before) {
        const unsigned long long y = wgmma::descriptor_k(y_tiles + ring.stage * Y_BYTES);
        hopper::mbarrier_wait(ring.arrived(), ring.phase);
#pragma unroll
        for (int k = 0; k < STEPS; ++k) {
#pragma unroll
          for (int part = 0; part < PARTS; ++part) {
#pragma unroll
            for (int w = 0; w < 4; ++w) {
              asm volatile("ld.shared.u32 %0, [%1];"
                           : "=r"(x[k][part][w])
                           : "r"(place[w] + ring.stage * X_BYTES + part * (2 * BOX_BYTES) + k * 8 * ROW_BYTES)
                           : "memory");
            }
          }
        }
        wgmma::fence();
#pragma unroll
        for (int k = 0; k < STEPS; ++k) {
#pragma unroll
          for (int part = 0; part < PARTS; ++part) {
            wgmma::multiply<wgmma::Tf32>(sums[part], x[k][part], y + k * wgmma::STEP_K, before || k > 0);
          }
        }
        wgmma::commit();
        wgmma::wait<1>();
        if (before) release(ring.released_before());
        ring.advance();
      };
      // Two sets of registers: one is loaded while the products of the other are under way. The compiler has to see
      // that they take turns, so what is left of an odd number of k-blocks comes first, by itself.
      unsigned even[STEPS][PARTS][4], odd[STEPS][PARTS][4];
      const int single = blocks_k % 2;
      if (single) {
        multiply(even, false);
        wgmma::wait<0>();
      }
#pragma unroll 1
      for (int block = single; block < blocks_k; block += 2) {
        multiply(even, block > 0);
        multiply(odd, true);
      }
      wgmma::wait<0>();
      release(ring.released_before());

      int p, q;
      locate(tile, p, q);
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        if constexpr (TRANSPOSED) {
          k_major::store_sums(sums[part], C, ldc, p + first + part * 64, q, M, N);
        } else {
          store_turned(sums[part], C, ldc, p + first + part * 64, q, P, Q);
        }
      }
    }
  }
  // A block's shared memory must last as long as others of the cluster write to it or arrive at its barriers.
  if (CLUSTER > 1) hopper::cluster_sync();
}
