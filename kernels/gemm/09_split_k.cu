// Rung 9: several blocks share a tile of C, each a part of K.
//
// Adds to rung 7: work for all multiprocessors where C is small. A 64×64 product over K = 65536 is one tile, on
// one multiprocessor of 132; split 128 ways along K it is 128 blocks. A block leaves its partial sums in a
// workspace and counts itself; the one that completes the count adds them all up, in the order of K whatever the
// order of arrival: results are the same to the last bit in every launch. More than 16 parts are added in two
// levels, groups first, so that nobody reads more than a few parts by itself.
//
// The counters are zero before the first launch, and whoever completes one sets it back to zero for the next.
#include "arrival.cuh"
#include "pipeline.cuh"

// Parts that are added by one block: all up to 16, else about the square root.
__host__ __device__ constexpr int fan_in(int parts) {
  if (parts <= 16) return parts;
  int fan = 4;
  while (fan * fan < parts) ++fan;
  return fan;
}

template <typename T, int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int GROUP, int UNROLL,
          int BURSTS, int PAIRED, int SPLITS>
__device__ __forceinline__ void compute_part(const T* A, const T* B, Output<T>* C, T* partial, unsigned* arrived,
                                             int M, int N, int K, int lda, int ldb, int ldc) {
  using Block = Pipeline<T, BM, BN, BK, WM, WN, TM, TN, STAGES, UNROLL, BURSTS, PAIRED>;
  extern __shared__ __align__(16) unsigned char memory[];

  const int tile = blockIdx.x / SPLITS, part = blockIdx.x % SPLITS;
  const Origin origin = tile_origin<BM, BN, GROUP>(tile, M, N);
  // Whole steps a part; where K is short the last parts have nothing to do.
  const int steps = (K + BK - 1) / BK, share = (steps + SPLITS - 1) / SPLITS, parts = (steps + share - 1) / share;
  if (part >= parts) return;
  const int k0 = part * share * BK;
  const Block block{A + static_cast<size_t>(origin.row) * lda + k0,
                    B + static_cast<size_t>(k0) * ldb + origin.column,
                    M - origin.row,
                    N - origin.column,
                    min(share * BK, K - k0),
                    lda,
                    ldb,
                    chunks_aligned(B, ldb) && N % Chunk<T>::WIDTH == 0,
                    reinterpret_cast<T*>(memory)};
  T sum[TM][TN] = {};
  block.run(sum);

  if (SPLITS > 1) {
    constexpr int CHUNKS = TM * Block::CHUNKS_N, FAN = fan_in(SPLITS), FANS = (SPLITS + FAN - 1) / FAN;
    // Tiles of a batch are counted through.
    const size_t place_of_tile = static_cast<size_t>(blockIdx.z) * (gridDim.x / SPLITS) + tile;
    Chunk<T>* const parts_of_tile =
        reinterpret_cast<Chunk<T>*>(partial) + place_of_tile * SPLITS * CHUNKS * Block::THREADS;
    unsigned* const counters = arrived + place_of_tile * (FANS + 1);

    // Leaves the sums at `place`, counts up to `expected`, and says whether this block completed the count.
    auto hand_in = [&](int place, unsigned* counter, int expected) {
      Chunk<T>* const to = parts_of_tile + static_cast<size_t>(place) * CHUNKS * Block::THREADS + threadIdx.x;
#pragma unroll
      for (int i = 0; i < CHUNKS; ++i) {
        to[i * Block::THREADS] =
            Block::swapped(&sum[i / Block::CHUNKS_N][i % Block::CHUNKS_N * Block::WIDTH]);
      }
      const bool complete = arrives_last(counter, expected, *reinterpret_cast<bool*>(memory));
      __syncthreads();
      return complete;
    };
    // Adds up what lies at `first`, `first + stride`, …: `count` parts.
    auto add_up = [&](int first, int stride, int count) {
#pragma unroll
      for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < TN; ++j) sum[i][j] = T{};
      }
#pragma unroll 1
      for (int part = 0; part < count; ++part) {
        const Chunk<T>* const from =
            parts_of_tile + static_cast<size_t>(first + part * stride) * CHUNKS * Block::THREADS + threadIdx.x;
#pragma unroll
        for (int i = 0; i < CHUNKS; ++i) {
          const Chunk<T> in = from[i * Block::THREADS];
#pragma unroll
          for (int v = 0; v < Block::WIDTH; ++v) {
            sum[i / Block::CHUNKS_N][i % Block::CHUNKS_N * Block::WIDTH + (v ^ Block::SWAP)] += in.value[v];
          }
        }
      }
    };

    const int fan = part / FAN, first = fan * FAN;
    const int fans = (parts + FAN - 1) / FAN, count = min(FAN, parts - first);
    if (!hand_in(part, counters + fan, count)) return;
    add_up(first, 1, count);
    if (fans > 1) {
      if (!hand_in(first, counters + FANS, fans)) return;
      add_up(0, FAN, fans);
    }
  }
  block.store(sum, C + static_cast<size_t>(origin.row) * ldc + origin.column, ldc);
}

template <typename T, int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int GROUP, int UNROLL,
          int BURSTS, int PAIRED, int BLOCKS, int SPLITS>
__global__ void __launch_bounds__((BM / WM) * (BN / WN) * 32, BLOCKS)
    gemm_split_k(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, T* partial,
                 unsigned* arrived, int M, int N, int K, int lda, int ldb, int ldc) {
  compute_part<T, BM, BN, BK, WM, WN, TM, TN, STAGES, GROUP, UNROLL, BURSTS, PAIRED, SPLITS>(
      A, B, C, partial, arrived, M, N, K, lda, ldb, ldc);
}

// A batch: a product for each blockIdx.z, its matrices so many elements behind the first ones.
template <typename T, int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int GROUP, int UNROLL,
          int BURSTS, int PAIRED, int BLOCKS, int SPLITS>
__global__ void __launch_bounds__((BM / WM) * (BN / WN) * 32, BLOCKS)
    gemm_batched_split_k(const T* __restrict__ A, const T* __restrict__ B, Output<T>* __restrict__ C, T* partial,
                         unsigned* arrived, int M, int N, int K, int lda, int ldb, int ldc, long long stride_a,
                         long long stride_b, long long stride_c) {
  const long long batch = blockIdx.z;
  compute_part<T, BM, BN, BK, WM, WN, TM, TN, STAGES, GROUP, UNROLL, BURSTS, PAIRED, SPLITS>(
      A + batch * stride_a, B + batch * stride_b, C + batch * stride_c, partial, arrived, M, N, K, lda, ldb, ldc);
}
