// What a warp does that multiplies from a ring of tiles in shared memory, which TMA fills (rungs 8 and 11).
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
#pragma once
#include "../common/hopper.cuh"

namespace ffma_ring {

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

// Where the ring's tiles and barriers lie in shared memory, and which stage of which turn comes next.
template <int BM, int BN, int BK, int STAGES>
struct Ring {
  // Rows of A's boxes are as long as a swizzle of TMA, at most; a stage may have two boxes side by side.
  static constexpr int DEPTH = BK < 32 ? BK : 32;
  static constexpr unsigned ROW_BYTES = DEPTH * 4, BOX_BYTES = BM * ROW_BYTES;
  static constexpr unsigned A_BYTES = BM * BK * 4, B_BYTES = BK * BN * 4;
  static_assert(DEPTH >= 16 && BK % DEPTH == 0, "a swizzle of 64 or 128 bytes");
  static constexpr unsigned BYTES = STAGES * (A_BYTES + B_BYTES + 16);

  unsigned a_tiles, b_tiles, arrived, released;
  int stage = 0;
  unsigned phase = 0;

  __device__ __forceinline__ explicit Ring(unsigned start)
      : a_tiles(start),
        b_tiles(start + STAGES * A_BYTES),
        arrived(start + STAGES * (A_BYTES + B_BYTES)),
        released(start + STAGES * (A_BYTES + B_BYTES + 8)) {}

  // One thread of the block calls this, before a barrier for all: each stage is released by so many warps.
  __device__ __forceinline__ void initialise(int warps) const {
    for (int s = 0; s < STAGES; ++s) {
      hopper::mbarrier_init(arrived + s * 8, 1);
      hopper::mbarrier_init(released + s * 8, warps);
    }
    hopper::mbarrier_init_fence();
  }

  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, phase ^= 1;
  }

  // Starts the copies of the next stage, when it is free: a column of blocks of A and B, `k` deep.
  __device__ __forceinline__ void fill(const hopper::TensorMap* a_map, const hopper::TensorMap* b_map, int row,
                                       int column, int k) {
    hopper::mbarrier_wait(released + stage * 8, phase ^ 1);
    hopper::mbarrier_arrive_expect(arrived + stage * 8, A_BYTES + B_BYTES);
#pragma unroll
    for (int box = 0; box < BK / DEPTH; ++box) {
      hopper::tma_load(a_tiles + stage * A_BYTES + box * BOX_BYTES, a_map, arrived + stage * 8, k + box * DEPTH, row);
    }
    hopper::tma_load(b_tiles + stage * B_BYTES, b_map, arrived + stage * 8, column, k);
    advance();
  }

  // Adds up the products of `blocks_k` stages, of which this warp takes every WK-th unit of 4 k from `part` on.
  // Its rows and columns begin at those given, for each lane its own.
  template <int WK, int TM, int TN>
  __device__ __forceinline__ void multiply_stages(float (&sum)[TM][TN], int blocks_k, int row, int column, int part,
                                                  unsigned always) {
    constexpr int GROUPS = TN / 4;
    const bool elected = threadIdx.x % 32 == 0;
    // TMA puts unit u of 16 bytes of a row to u ^ swizzle; rows 8 apart have the same.
    const unsigned swizzle = (DEPTH == 32 ? row % 8 : row / 2 % 4) * 16;
    const unsigned a_place = a_tiles + row * ROW_BYTES, a_first = (part * 16) ^ swizzle;
    const unsigned b_first = b_tiles + part * (4 * BN * 4) + column * 4;

    float4 a[TM], b[2][GROUPS];
    hopper::mbarrier_wait(arrived + stage * 8, phase);
    unsigned a_row = a_place + stage * A_BYTES;
    unsigned b_row = b_first + stage * B_BYTES;
#pragma unroll
    for (int j = 0; j < GROUPS; ++j) load_in_place(b[0][j], b_row + j * LANES_N * 16, always);
#pragma unroll
    for (int i = 0; i < TM; ++i) a[i] = load(a_row + a_first + i * LANES_M * ROW_BYTES);

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
        const unsigned next = k == 3 ? next_b : b_row + (k + 1) * BN * 4;
#pragma unroll
        for (int j = 0; j < GROUPS; ++j) {
          if (k < 3 || !last) load_in_place(b[(k + 1) % 2][j], next + j * LANES_N * 16, always);
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
      if constexpr (BK > 4 * WK) {
        unsigned last_row = b_row + (BK - 4 * WK) * BN * 4;
        // A loop of one turn, which the compiler is not to know: without it ptxas branches around predicated loads.
        if constexpr (BK == 8 * WK) asm volatile("" : "+r"(last_row));
        unsigned unit = part * 16;
#pragma unroll 1
        while (b_row != last_row) {
          unit += WK * 16;
          const unsigned place = BK == DEPTH ? unit ^ swizzle : unit % ROW_BYTES ^ swizzle;
          const unsigned box = BK == DEPTH ? 0 : unit / ROW_BYTES * BOX_BYTES;
          finish(false, a_row + box + place, b_row + WK * 4 * BN * 4);
          begin();
        }
      }
      if (block == blocks_k) break;
      const unsigned used = released + stage * 8;
      advance();
      hopper::mbarrier_wait(arrived + stage * 8, phase);
      a_row = a_place + stage * A_BYTES;
      finish(false, a_row + a_first, b_first + stage * B_BYTES);
      begin();
      __syncwarp();
      if (elected) hopper::mbarrier_arrive(used);
    }
    finish(true, 0, 0);
    __syncwarp();
    if (elected) hopper::mbarrier_arrive(released + stage * 8);
    advance();
  }
};

}  // namespace ffma_ring
