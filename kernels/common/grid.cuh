// What all blocks of a grid do together: they meet, and they copy a matrix whose rows TMA cannot read to where it can.
//
// Blocks that wait for each other have to run at the same time: a grid of at most one block a multiprocessor does.
#pragma once

namespace grid {

// "membar / fence: fence.proxy.async": orders this thread's ordinary accesses to global memory, and those that it
// has come to know of, with those of TMA.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// One thread of each block calls this and gets on when all have. `word` is zero before the first launch and never
// reset: the steps of a meeting add up to its highest bit, which thereby changes, and the rest is zero again.
__device__ __forceinline__ void meet(unsigned* word) {
  const unsigned others = gridDim.x * gridDim.y * gridDim.z - 1, changes = 0x80000000u;
  const bool first = (blockIdx.x | blockIdx.y | blockIdx.z) == 0;
  __threadfence();
  const unsigned before = atomicAdd(word, first ? changes - others : 1u);
  unsigned now;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
  } while (((before ^ now) & changes) == 0);
  __threadfence();
}

// All threads of all blocks meet; what was written before is seen after, by ordinary loads and by TMA.
__device__ __forceinline__ void sync(unsigned* word) {
  fence_async_proxy();
  __syncthreads();
  if ((threadIdx.x | threadIdx.y | threadIdx.z) == 0) meet(word);
  __syncthreads();
  fence_async_proxy();
}

// 16 bytes from `shift` on of the 32 that `low` and `high` hold, of which four words are left in `low`.
template <int ELEMENT_BYTES>
__device__ __forceinline__ uint4 shifted(const uint4& low, const uint4& high, unsigned shift) {
  unsigned word[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < 6; ++i) word[i] = shift & 8 ? word[i + 2] : word[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) word[i] = shift & 4 ? word[i + 1] : word[i];
  if (ELEMENT_BYTES < 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) word[i] = __funnelshift_r(word[i], word[i + 1], shift % 4 * 8);
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

// The first `bytes` of 16, and zeros.
__device__ __forceinline__ uint4 beginning(const uint4& all, int bytes) {
  unsigned word[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int left = bytes - 4 * i;
    word[i] &= left >= 4 ? ~0u : left <= 0 ? 0u : ~0u >> (32 - 8 * left);
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

// Copies rows × columns of `from`, whose rows lie `ld` elements apart, to `to`, whose rows lie `pitch` apart, and
// fills the rest of those with zeros. `to` and `pitch` are multiples of 16 bytes; `from` and `ld` of nothing. All
// threads of a one-dimensional grid take part. A thread reads the one or two aligned 16 bytes that its own lie in:
// of the second, the line is in the first-level cache. What it reads beside a row lies in the array, and is dropped.
template <typename T, int AT_ONCE = 8>
__device__ __forceinline__ void copy_padded(T* to, int pitch, const T* from, int ld, int rows, int columns) {
  constexpr int WIDTH = 16 / sizeof(T);
  using Address = unsigned long long;
  const int chunks = pitch / WIDTH;
  const Address begin = reinterpret_cast<Address>(from);
  const Address end = reinterpret_cast<Address>(from + static_cast<size_t>(rows - 1) * ld + columns);
  const unsigned threads = gridDim.x * blockDim.x, self = blockIdx.x * blockDim.x + threadIdx.x;
  const int rows_on = threads / chunks, chunks_on = threads % chunks;
  int row = self / chunks, chunk = self % chunks;
  while (row < rows) {
    uint4 low[AT_ONCE], high[AT_ONCE];
    Address source[AT_ONCE];
    T* target[AT_ONCE];
    int left[AT_ONCE];
    bool inside[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      source[i] = reinterpret_cast<Address>(from + static_cast<size_t>(row) * ld + chunk * WIDTH);
      target[i] = to + static_cast<size_t>(row) * pitch + chunk * WIDTH;
      left[i] = row < rows ? min(16, (columns - chunk * WIDTH) * static_cast<int>(sizeof(T))) : 0;
      const Address word = source[i] & ~Address{15};
      const int second = source[i] % 16 + left[i] > 16;
      inside[i] = left[i] > 0 && begin <= word && word + 16 * (second + 1) <= end;
      if (inside[i]) low[i] = __ldg(reinterpret_cast<const uint4*>(word));
      if (inside[i]) high[i] = __ldg(reinterpret_cast<const uint4*>(word) + second);
      row += rows_on;
      chunk += chunks_on;
      if (chunk >= chunks) chunk -= chunks, ++row;
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      if (inside[i]) {
        const uint4 whole = shifted<sizeof(T)>(low[i], high[i], source[i] % 16);
        *reinterpret_cast<uint4*>(target[i]) = beginning(whole, left[i]);
      } else if (left[i] > 0) {
#pragma unroll 1
        for (int v = 0; v < WIDTH; ++v) {
          const bool is_element = v * static_cast<int>(sizeof(T)) < left[i];
          target[i][v] = is_element ? reinterpret_cast<const T*>(source[i])[v] : T(0.0f);
        }
      }
    }
  }
}

}  // namespace grid
