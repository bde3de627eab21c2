// Rung 8: TMA feeds a ring of tiles in shared memory, eight or twelve warps multiply from it.
//
// Adds to rung 7: one thread of a warpgroup of its own starts the copies of whole tiles, so the warps that multiply
// spend no instruction and no register on loading; edges are filled with zeros by the copy itself. A barrier a
// stage says that its tiles have come, another that they are done with. Each block works through tiles of C in
// an order that keeps neighbours in the second-level cache together, so the next tile's copies begin while the
// last one is still being stored.
//
// On an H200, 4096³ with a cold second-level cache: 55.0 TFLOP/s, 82 % of what its multiply-adds can reach, where
// cuBLAS has 51.2.
//
// What a thread does in the main loop: a lane has (WM / 8) × (WN / 4) elements of C, rows 8 apart, columns in
// groups of four 16 apart. A's tile is row-major, so a load of 16 bytes brings four values along k of a row; they
// serve four steps of k, a unit. TMA's swizzle spreads the eight rows that a warp reads together over all banks.
//
// Four things of this loop are there for the machine code that comes of it (nvcc 13.0, cuobjdump -sass).
//
//  - The register file has two banks, even and odd registers, of one read each a clock. A multiply-add runs at
//    full rate only where one of its three operands comes from the operand cache, which holds what the last
//    instruction has read in the same place, and the others from different banks: multiply-adds alone reach 0.62
//    of the peak rate with nothing shared, 0.93 to 0.98 with one operand shared by neighbours (H200). So
//    neighbours share a value of A or B here: along a row there and back, a group of four columns after the other.
//  - B is loaded by load_in_place, predicated on a condition that always holds, which the compiler does not know.
//    To it the registers keep their old content, so it cannot start the load before their last use. Without this
//    it overlaps steps of k, takes the multiply-adds in the order in which operands arrive, and the sharing ends.
//  - The loop is cut within a step of k, where every value that was loaded in it has been used once. A load whose
//    value is first used behind the loop's end is put there by the compiler, whatever its place in the source,
//    and its latency is not hidden by anything.
//  - The result is multiplied by one before it is stored. Stores of 16 bytes would hold the four sums of a group
//    in four successive registers, of the same parity as the four values of B that they are computed from. The
//    multiplication has registers of its own, and the sums may lie in the other bank.
#include "../common/hopper.cuh"

namespace tma_pipeline {

constexpr int LANES_M = 8, LANES_N = 4;  // of a warp, along M and N
constexpr int CUT = 4;                   // rows before the loop's end
constexpr int PRODUCER_THREADS = 128, PRODUCER_REGISTERS = 24;
constexpr int FILE_REGISTERS = 65536;

// What each of the threads that multiply may have of the registers that the producers leave.
template <int THREADS>
constexpr int CONSUMER_REGISTERS =
    (FILE_REGISTERS - PRODUCER_THREADS * PRODUCER_REGISTERS) / THREADS < 240
        ? (FILE_REGISTERS - PRODUCER_THREADS * PRODUCER_REGISTERS) / THREADS / 8 * 8
        : 240;

// What `value` holds before need not be anything: it only keeps its registers occupied until here.
__device__ __forceinline__ void load_in_place(float4& value, unsigned address, unsigned always) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\n@p ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];\n}"
      : "+f"(value.x), "+f"(value.y), "+f"(value.z), "+f"(value.w)
      : "r"(address), "r"(always));
}

__device__ __forceinline__ float4 load(unsigned address) {
  float4 value;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(address));
  return value;
}

__device__ __forceinline__ float element(const float4& value, int index) {
  return index == 0 ? value.x : index == 1 ? value.y : index == 2 ? value.z : value.w;
}

// Adds what step k of the unit gives for four columns of the rows from … to - 1.
template <int TM, int TN>
__device__ __forceinline__ void multiply(float (&sum)[TM][TN], const float4 (&a)[TM], const float4& b, int k,
                                         int group, int from, int to) {
#pragma unroll
  for (int i = from; i < to; ++i) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int j = i % 2 ? 3 - n : n;
      sum[i][4 * group + j] = fmaf(element(a[i], k), element(b, j), sum[i][4 * group + j]);
    }
  }
}

// Stores four elements of a row, of which `left` belong to it; at once where `whole` says that they are aligned.
__device__ __forceinline__ void store_four(float* to, const float4& four, int left, bool whole) {
  if (whole && left >= 4) {
    *reinterpret_cast<float4*>(to) = four;
  } else {
    if (left > 0) to[0] = four.x;
    if (left > 1) to[1] = four.y;
    if (left > 2) to[2] = four.z;
    if (left > 3) to[3] = four.w;
  }
}

// The first row and column of tile `index`: GROUP rows of tiles are walked through column by column.
template <int BM, int BN, int GROUP>
__device__ __forceinline__ void locate(int index, int tiles_m, int tiles_n, int& row, int& column) {
  const int band = index / (GROUP * tiles_n), within = index - band * (GROUP * tiles_n);
  const int height = min(GROUP, tiles_m - band * GROUP);
  row = (band * GROUP + within % height) * BM;
  column = within / height * BN;
}

}  // namespace tma_pipeline

template <int BM, int BN, int BK, int WM, int WN, int STAGES, int GROUP>
__global__ void __launch_bounds__((BM / WM) * (BN / WN) * 32 + 128, 1)
    gemm_tma_pipeline(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N,
                      int K, int lda, int ldb, int ldc, const __grid_constant__ hopper::TensorMap a_map,
                      const __grid_constant__ hopper::TensorMap b_map) {
  using namespace tma_pipeline;
  constexpr int WARPS = (BM / WM) * (BN / WN);
  constexpr int TM = WM / LANES_M, TN = WN / LANES_N, GROUPS = TN / 4;
  constexpr unsigned ROW_BYTES = BK * 4, A_BYTES = BM * ROW_BYTES, B_BYTES = BK * BN * 4;
  static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles cover the block tile");
  static_assert(WM % LANES_M == 0 && WN % (4 * LANES_N) == 0, "lanes cover the warp tile, four columns each");
  static_assert(BK == 16 || BK == 32, "a row of A's tile is as long as a swizzle of TMA");

  extern __shared__ unsigned char memory[];
  const unsigned a_tiles = (hopper::shared_address(memory) + 1023) & ~1023u;
  const unsigned b_tiles = a_tiles + STAGES * A_BYTES, arrived = b_tiles + STAGES * B_BYTES;
  const unsigned released = arrived + STAGES * 8;

  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      hopper::mbarrier_init(arrived + stage * 8, 1);
      hopper::mbarrier_init(released + stage * 8, WARPS);
    }
    hopper::mbarrier_init_fence();
  }
  __syncthreads();

  const int tiles_m = (M + BM - 1) / BM, tiles_n = (N + BN - 1) / BN, tiles = tiles_m * tiles_n;
  const int blocks_k = (K + BK - 1) / BK;
  int stage = 0;
  unsigned phase = 0;

  if (warp >= WARPS) {
    hopper::setmaxnreg_decrease<PRODUCER_REGISTERS>();
    if (warp == WARPS && lane == 0) {
      hopper::prefetch_map(&a_map);
      hopper::prefetch_map(&b_map);
      for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int row, column;
        locate<BM, BN, GROUP>(tile, tiles_m, tiles_n, row, column);
        for (int block = 0; block < blocks_k; ++block) {
          hopper::mbarrier_wait(released + stage * 8, phase ^ 1);
          hopper::mbarrier_arrive_expect(arrived + stage * 8, A_BYTES + B_BYTES);
          hopper::tma_load(a_tiles + stage * A_BYTES, &a_map, arrived + stage * 8, block * BK, row);
          hopper::tma_load(b_tiles + stage * B_BYTES, &b_map, arrived + stage * 8, column, block * BK);
          if (++stage == STAGES) stage = 0, phase ^= 1;
        }
      }
    }
    return;
  }
  hopper::setmaxnreg_increase<CONSUMER_REGISTERS<WARPS * 32>>();

  const int row_in_tile = warp / (BN / WN) * WM + lane / LANES_N;
  const int column_in_tile = warp % (BN / WN) * WN + lane % LANES_N * 4;
  // TMA puts unit u of 16 bytes of a row to u ^ swizzle; rows 8 apart have the same.
  const unsigned swizzle = (BK == 32 ? row_in_tile % 8 : row_in_tile / 2 % 4) * 16;
  const unsigned always = K;
  const float one = __int_as_float(0x3f800000 | K >> 31);
  const bool whole = ldc % 4 == 0;

  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    float sum[TM][TN];
#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
      for (int j = 0; j < TN; ++j) sum[i][j] = 0.0f;
    }

    float4 a[TM], b[2][GROUPS];
    hopper::mbarrier_wait(arrived + stage * 8, phase);
    unsigned a_row = a_tiles + stage * A_BYTES + row_in_tile * ROW_BYTES;
    unsigned b_row = b_tiles + stage * B_BYTES + column_in_tile * 4;
#pragma unroll
    for (int j = 0; j < GROUPS; ++j) load_in_place(b[0][j], b_row + j * LANES_N * 16, always);
#pragma unroll
    for (int i = 0; i < TM; ++i) a[i] = load(a_row + swizzle + i * LANES_M * ROW_BYTES);

    // The first step of a unit, up to where the loop is cut.
    const auto begin = [&] {
#pragma unroll
      for (int j = 0; j < GROUPS - 1; ++j) multiply(sum, a, b[0][j], 0, j, 0, TM);
      multiply(sum, a, b[0][GROUPS - 1], 0, GROUPS - 1, 0, CUT);
    };
    // The rest of it; the last unit loads nothing.
    const auto finish = [&](bool last, unsigned next_a, unsigned next_b) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const unsigned row = k == 3 ? next_b : b_row + (k + 1) * BN * 4;
#pragma unroll
        for (int j = 0; j < GROUPS; ++j) {
          if (k < 3 || !last) load_in_place(b[(k + 1) % 2][j], row + j * LANES_N * 16, always);
        }
        if (k > 0) {
#pragma unroll
          for (int j = 0; j < GROUPS - 1; ++j) multiply(sum, a, b[k % 2][j], k, j, 0, TM);
        }
#pragma unroll
        for (int i = k > 0 ? 0 : CUT; i < TM; ++i) {
          multiply(sum, a, b[k % 2][GROUPS - 1], k, GROUPS - 1, i, i + 1);
          if (k == 3 && !last) a[i] = load(next_a + i * LANES_M * ROW_BYTES);
        }
      }
      b_row = next_b;
    };

    begin();
    for (int block = 1;; ++block) {
      const unsigned last_row = b_row + (BK - 4) * BN * 4;
      unsigned unit = 0;
#pragma unroll 1
      while (b_row != last_row) {
        unit += 16;
        finish(false, a_row + (unit ^ swizzle), b_row + 4 * BN * 4);
        begin();
      }
      if (block == blocks_k) break;
      const unsigned used = released + stage * 8;
      if (++stage == STAGES) stage = 0, phase ^= 1;
      hopper::mbarrier_wait(arrived + stage * 8, phase);
      a_row = a_tiles + stage * A_BYTES + row_in_tile * ROW_BYTES;
      finish(false, a_row + swizzle, b_tiles + stage * B_BYTES + column_in_tile * 4);
      begin();
      __syncwarp();
      if (lane == 0) hopper::mbarrier_arrive(used);
    }
    finish(true, 0, 0);
    __syncwarp();
    if (lane == 0) hopper::mbarrier_arrive(released + stage * 8);
    if (++stage == STAGES) stage = 0, phase ^= 1;

    int row, column;
    locate<BM, BN, GROUP>(tile, tiles_m, tiles_n, row, column);
    row += row_in_tile;
    column += column_in_tile;
#pragma unroll
    for (int i = 0; i < TM; ++i) {
      if (row + i * LANES_M >= M) break;
      float* to = C + static_cast<size_t>(row + i * LANES_M) * ldc + column;
#pragma unroll
      for (int j = 0; j < GROUPS; ++j) {
        const float4 four = make_float4(sum[i][4 * j] * one, sum[i][4 * j + 1] * one, sum[i][4 * j + 2] * one,
                                        sum[i][4 * j + 3] * one);
        store_four(to + j * LANES_N * 4, four, N - column - j * LANES_N * 4, whole);
      }
    }
  }
}
