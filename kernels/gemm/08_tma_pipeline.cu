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
// The main loop is in ffma_ring.cuh, which says why it is written like that.
#include "ffma_ring.cuh"

template <int BM, int BN, int BK, int WM, int WN, int STAGES, int GROUP>
__global__ void __launch_bounds__((BM / WM) * (BN / WN) * 32 + 128, 1)
    gemm_tma_pipeline(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N,
                      int K, int lda, int ldb, int ldc, const __grid_constant__ hopper::TensorMap a_map,
                      const __grid_constant__ hopper::TensorMap b_map) {
  using namespace ffma_ring;
  constexpr int WARPS = (BM / WM) * (BN / WN);
  constexpr int TM = WM / LANES_M, TN = WN / LANES_N, GROUPS = TN / 4;
  static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles cover the block tile");
  static_assert(WM % LANES_M == 0 && WN % (4 * LANES_N) == 0, "lanes cover the warp tile, four columns each");

  extern __shared__ unsigned char memory[];
  Ring<BM, BN, BK, STAGES> ring((hopper::shared_address(memory) + 1023) & ~1023u);

  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (threadIdx.x == 0) ring.initialise(WARPS);
  __syncthreads();

  const int tiles_m = (M + BM - 1) / BM, tiles_n = (N + BN - 1) / BN, tiles = tiles_m * tiles_n;
  const int blocks_k = (K + BK - 1) / BK;
  int row, column;

  if (warp >= WARPS) {
    hopper::setmaxnreg_decrease<PRODUCER_REGISTERS>();
    if (warp == WARPS && lane == 0) {
      hopper::prefetch_map(&a_map);
      hopper::prefetch_map(&b_map);
      for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        locate<BM, BN, GROUP>(tile, tiles_m, tiles_n, row, column);
        for (int block = 0; block < blocks_k; ++block)  ring.fill(&a_map, &b_map, row, column, block * BK);
      }
    }
    return;
  }
  hopper::setmaxnreg_increase<CONSUMER_REGISTERS<WARPS * 32>>();

  const int row_in_tile = warp / (BN / WN) * WM + lane / LANES_N;
  const int column_in_tile = warp % (BN / WN) * WN + lane % LANES_N * 4;
  const float one = __int_as_float(0x3f800000 | K >> 31);
  const bool whole = ldc % 4 == 0;

  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    float sum[TM][TN];
#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
      for (int j = 0; j < TN; ++j) sum[i][j] = 0.0f;
    }
    ring.template multiply_stages<1>(sum, blocks_k, row_in_tile, column_in_tile, 0, K);

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
