// What rungs 11 and 12 share beside the division of the work: how blocks add up what several of them have computed of
// one tile. Each leaves its sums in a workspace, or in its shared memory, and says so. Sums are added in the order of
// K whoever comes first, so results are the same to the last bit in every launch.
#pragma once

#include "../element.cuh"
#include "division.cuh"
#include "ring.cuh"
#include "store.cuh"
#include "tile_order.cuh"

namespace streams {

constexpr int DEPTH = 64;  // elements of K in a k-block: one row of a 128-byte swizzle
constexpr int CHUNK = 64;  // columns of a box of B, for the same reason
constexpr unsigned BOX_BYTES = CHUNK * DEPTH * 2;

// Counters of tiles, zero before and after a launch, for THREADS threads of a block that share named barrier BARRIER.
template <int THREADS, int BARRIER>
struct Counters {
  unsigned* arrived;

  static __device__ __forceinline__ void meet() { hopper::named_barrier(BARRIER, THREADS); }

  // What all threads wrote before is seen by whoever awaits the count.
  __device__ __forceinline__ void count(int tile) const {
    meet();
    if (threadIdx.x % THREADS == 0) {
      __threadfence();
      atomicAdd(arrived + tile, 1u);
    }
  }

  // Until `parts` blocks have counted themselves in ("ld.acquire").
  __device__ __forceinline__ void await(int tile, unsigned parts) const {
    if (threadIdx.x % THREADS == 0) {
      unsigned now;
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(arrived + tile) : "memory");
      } while (now < parts);
    }
    meet();
  }

  // The only one that waited.
  __device__ __forceinline__ void reset(int tile) const {
    if (threadIdx.x % THREADS == 0) arrived[tile] = 0;
  }

  // One of `parts` that waited: the last one sets the counter back.
  __device__ __forceinline__ void leave(int tile, unsigned parts) const {
    if (threadIdx.x % THREADS == 0 && atomicAdd(arrived + tile, 1u) == 2 * parts - 1) arrived[tile] = 0;
  }
};

// Four neighbours in a row of C, of which those outside are left out.
template <typename T>
__device__ __forceinline__ void store_four(const float4& sum, T* C, int ldc, int row, int column, int M, int N) {
  if (row >= M || column >= N) return;
  const unsigned low = store::pack(sum.x, sum.y, T()), high = store::pack(sum.z, sum.w, T());
  T* const to = C + static_cast<size_t>(row) * ldc + column;
  if (column + 4 <= N && reinterpret_cast<size_t>(to) % 8 == 0) {
    *reinterpret_cast<uint2*>(to) = make_uint2(low, high);
  } else {
    store::store_pair(to, low, N - column, false);
    store::store_pair(to + 2, high, N - column - 2, false);
  }
}

// All sums of a warpgroup's 64 rows through a slab of its warps, to rows of C that begin at multiples of 16 bytes: 16
// bytes a lane. Against TMA, threads are busy with it, and done sooner.
template <typename T, int Sums>
__device__ __forceinline__ void store_wide(const float (&sums)[Sums], unsigned slab, T* C, int ldc, int row,
                                           int column, int M, int N) {
  const int lane = threadIdx.x % 32, first = row + threadIdx.x % 128 / 32 * store::ROWS;
  unsigned pairs[Sums / 2];
  store::round_all<T>(pairs, sums);
  const auto fill = [&](int s) {
    __syncwarp();
    store::fill_slab(pairs, s, slab);
    __syncwarp();
  };
  if (column + 2 * Sums <= N) {
#pragma unroll
    for (int s = 0; s < Sums * 2 / store::COLUMNS; ++s) {
      fill(s);
      uint4 units[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = i * 4 + lane / 8;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(units[i].x), "=r"(units[i].y), "=r"(units[i].z), "=r"(units[i].w)
                     : "r"(slab + r * 128 + ((lane % 8) ^ (r % 8)) * 16)
                     : "memory");
      }
      T* const to = C + static_cast<size_t>(first + lane / 8) * ldc + column + s * store::COLUMNS + lane % 8 * 8;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (first + i * 4 + lane / 8 < M) *reinterpret_cast<uint4*>(to + static_cast<size_t>(i * 4) * ldc) = units[i];
      }
    }
  } else {
#pragma unroll
    for (int s = 0; s < Sums * 2 / store::COLUMNS; ++s) {
      fill(s);
      store::empty_slab(slab, C, ldc, first, column + s * store::COLUMNS, M, N);
    }
  }
}

template <typename T>
__device__ __forceinline__ void store_one(float sum, T* C, int ldc, int row, int column, int M, int N) {
  if (row < M && column < N) C[static_cast<size_t>(row) * ldc + column] = narrow<T>(sum);
}

// Two neighbours.
template <typename T>
__device__ __forceinline__ void store_two(float first, float second, T* C, int ldc, int row, int column, int M, int N) {
  if (row >= M) return;
  T* const to = C + static_cast<size_t>(row) * ldc + column;
  store::store_pair(to, store::pack(first, second, T()), N - column, reinterpret_cast<size_t>(to) % 4 == 0);
}

// Adds up share `part` of `parts` equal runs of a tile of QUADS times four sums, and passes each four to `put(sum,
// quad)`. `fetch(part, quad)` brings them from what a part has computed. What takes the time is the way there and back,
// so a thread has several of them under way: of several parts where it has few quads, of several quads where it has
// many. Where there are fewer quads than THREADS threads, groups of threads add up some of the parts each, and `room`,
// 16 bytes a thread of shared memory, takes what they have.
template <int QUADS, int THREADS, int BARRIER, typename Fetch, typename Put>
__device__ __forceinline__ void add_share(int part, int parts, float4* room, const Fetch& fetch, const Put& put) {
  constexpr int AT_ONCE = 4;
  const int thread = threadIdx.x % THREADS;
  const int first = static_cast<int>(static_cast<unsigned>(QUADS * part) / parts);
  const int quads = static_cast<int>(static_cast<unsigned>(QUADS * (part + 1)) / parts) - first;
  const auto add = [](float4& sum, const float4& more) {
    sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
  };
  const auto add_up = [&](int from, int to, int quad) {
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int other = from; other < to; ++other) add(sum, fetch(other, quad));
    return sum;
  };
  int begin = thread;
  for (; begin + (AT_ONCE - 1) * THREADS < quads; begin += AT_ONCE * THREADS) {
    float4 sum[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) sum[i] = make_float4(0, 0, 0, 0);
#pragma unroll 2
    for (int other = 0; other < parts; ++other) {
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) add(sum[i], fetch(other, first + begin + i * THREADS));
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) put(sum[i], first + begin + i * THREADS);
  }
  if (quads >= THREADS || quads == 0) {
    for (; begin < quads; begin += THREADS) put(add_up(0, parts, first + begin), first + begin);
    return;
  }
  const int groups = min(THREADS / quads, parts), group = thread / quads, quad = first + thread % quads;
  if (group < groups) room[thread] = add_up(group * parts / groups, (group + 1) * parts / groups, quad);
  hopper::named_barrier(BARRIER, THREADS);
  if (group > 0) return;
  float4 sum = room[thread];
  for (int other = 1; other < groups; ++other) add(sum, room[other * quads + thread]);
  put(sum, quad);
}

// Copies of boxes by TMA, to this block or to those of the cluster that `blocks` has a bit for. With HINTED, the
// second-level cache lets go of them first: what is read once, or by all blocks at about the same time, then takes the
// place of its own kind, and what has to be written back to memory before its place is free stays.
template <bool HINTED>
struct Copier {
  unsigned long long policy = 0;

  __device__ __forceinline__ Copier() {
    if (HINTED) policy = hopper::policy_evict_first();
  }

  template <bool SHARED>
  __device__ __forceinline__ void copy(unsigned to, const hopper::TensorMap* map, unsigned barrier, int x, int y,
                                       unsigned short blocks) const {
    if constexpr (HINTED && SHARED) {
      hopper::tma_load_multicast_hinted(to, map, barrier, x, y, blocks, policy);
    } else if constexpr (HINTED) {
      hopper::tma_load_hinted(to, map, barrier, x, y, policy);
    } else if constexpr (SHARED) {
      hopper::tma_load_multicast(to, map, barrier, x, y, blocks);
    } else {
      hopper::tma_load(to, map, barrier, x, y);
    }
  }
};

// "st.async": four sums to the shared memory of a block of the cluster, counted at `barrier`, which is of the same
// block. As floats: words in their place would make words of the sums of wgmma too, and cost a copy of them a step.
__device__ __forceinline__ void send(unsigned address, float a, float b, float c, float d, unsigned barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                   address),
               "f"(a), "f"(b), "f"(c), "f"(d), "r"(barrier)
               : "memory");
}

// "mapa": where an address of shared memory lies in block `rank` of the cluster, as a generic address.
template <typename Type>
__device__ __forceinline__ const Type* in_block(const Type* address, unsigned rank) {
  const Type* there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(address), "r"(rank));
  return there;
}

}  // namespace streams
