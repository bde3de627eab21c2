// Kernels that read memory and compute nothing, for bench_reads.py: how fast can bytes come at all?
//
// All of them read `bytes` at `data` once, in chunks that blocks take in turns, and write nothing. Told to `add`, they
// add all 32-bit words to `sum` besides, which proves that every byte was read, and once.
#include "cluster.cuh"

namespace {

using Bytes = unsigned long long;

__device__ unsigned words(const uint4& run) { return run.x + run.y + run.z + run.w; }
__device__ unsigned words(const uint2& run) { return run.x + run.y; }

__device__ void load(uint4& run, const char* from, Bytes policy) {
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(run.x), "=r"(run.y), "=r"(run.z), "=r"(run.w)
               : "l"(from), "l"(policy));
}

__device__ void load(uint2& run, const char* from, Bytes policy) {
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v2.b32 {%0, %1}, [%2], %3;"
               : "=r"(run.x), "=r"(run.y)
               : "l"(from), "l"(policy));
}

// What the second-level cache shall do with what is read: 0 as always, 1 let it go first, 2 leave its rank as it is.
__device__ Bytes policy_of(unsigned hint) {
  Bytes normal, unchanged;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));
  asm volatile("createpolicy.fractional.L2::evict_unchanged.b64 %0, 1.0;" : "=l"(unchanged));
  return hint == 1 ? hopper::evict_first_policy() : hint == 2 ? unchanged : normal;
}

__device__ void bulk_load(unsigned destination, const char* from, unsigned bytes, unsigned barrier, Bytes policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(destination),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

// A ring of `stages` chunks in shared memory that ask(chunk, stage, …) keeps full, called by the first warp. Waits for
// each chunk and asks for the next one into its place.
template <typename Ask>
__device__ void read_ring(Bytes bytes, unsigned chunk, unsigned stages, unsigned add, unsigned* sum, const Ask& ask) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned ring = hopper::shared_address(memory), full = ring + stages * chunk;
  const unsigned chunks = static_cast<unsigned>(bytes / chunk);
  if (threadIdx.x == 0) {
    for (unsigned i = 0; i < stages; ++i) hopper::mbarrier_init(full + i * 8, 1);
    hopper::mbarrier_init_fence();
  }
  __syncthreads();
  unsigned asked = blockIdx.x, stage = 0, phase = 0, total = 0;
  const auto next = [&](unsigned into) {
    if (asked < chunks && threadIdx.x < 32) {
      if (threadIdx.x == 0) hopper::mbarrier_arrive_expect(full + into * 8, chunk);
      __syncwarp();
      ask(asked, ring + into * chunk, full + into * 8);
    }
    asked += gridDim.x;
  };
  for (unsigned i = 0; i < stages; ++i) next(i);
  for (unsigned taken = blockIdx.x; taken < chunks; taken += gridDim.x) {
    hopper::mbarrier_wait(full + stage * 8, phase);
    if (add) {
      for (unsigned i = threadIdx.x * 16; i < chunk; i += blockDim.x * 16) {
        total += words(*reinterpret_cast<const uint4*>(memory + stage * chunk + i));
      }
    }
    __syncthreads();
    next(stage);
    if (++stage == stages) stage = 0, phase ^= 1;
  }
  if (add) atomicAdd(sum, total);
}

// What a thread adds up of the runs of 16 bytes that it reads, AT_ONCE under way.
template <int AT_ONCE>
__device__ void read_loads(const char* data, Bytes bytes, unsigned hint, unsigned add, unsigned* sum) {
  const Bytes policy = policy_of(hint);
  const Bytes runs = bytes / 16, step = static_cast<Bytes>(gridDim.x) * blockDim.x;
  unsigned total = 0;
  for (Bytes i = static_cast<Bytes>(blockIdx.x) * blockDim.x + threadIdx.x; i < runs; i += AT_ONCE * step) {
    uint4 run[AT_ONCE];
#pragma unroll
    for (int u = 0; u < AT_ONCE; ++u) {
      run[u] = make_uint4(0, 0, 0, 0);
      if (i + u * step >= runs) continue;
      const char* const from = data + (i + u * step) * 16;
      load(run[u], from, policy);
    }
#pragma unroll
    for (int u = 0; u < AT_ONCE; ++u) total += words(run[u]);
  }
  // Whoever ends has waited for what it loaded, as it has to look.
  if (add || total == 0x9e3779b9u) atomicAdd(sum, total);
}

// Loads as fragments of the tensor cores want them: a block has a strip of the rows of `pitch` bytes, eight runs wide, with others if there
// are more blocks than strips; its warps take 32 rows in turns, with AHEAD such batches under way.
template <typename Run, int AHEAD>
__device__ void read_strips(const char* data, Bytes bytes, unsigned pitch, unsigned hint, unsigned add, unsigned* sum) {
  const Bytes policy = policy_of(hint);
  const unsigned strips = pitch / (8 * sizeof(Run)), sharing = gridDim.x / strips, warps = blockDim.x / 32;
  const unsigned step = sharing * warps, units = static_cast<unsigned>(bytes / pitch / 32), lane = threadIdx.x % 32;
  unsigned asked = blockIdx.x % sharing * warps + threadIdx.x / 32, total = 0;
  const char* from = data + (static_cast<Bytes>(asked) * 32 + lane % 4 * 8) * pitch +
                     (blockIdx.x / sharing * 8 + lane / 4) * sizeof(Run);
  Run batch[AHEAD][8];
  const auto next = [&](Run(&into)[8]) {
#pragma unroll
    for (int row = 0; row < 8; ++row) {
      into[row] = Run{};
      if (asked < units) load(into[row], from + static_cast<Bytes>(row) * pitch, policy);
    }
    asked += step;
    from += static_cast<Bytes>(step) * 32 * pitch;
  };
#pragma unroll
  for (int i = 0; i < AHEAD; ++i) next(batch[i]);
  for (unsigned taken = blockIdx.x % sharing * warps + threadIdx.x / 32; taken < units;) {
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
#pragma unroll
      for (int row = 0; row < 8; ++row) total += words(batch[i][row]);
      next(batch[i]);
      taken += step;
      if (taken >= units) break;
    }
  }
  if (add || total == 0x9e3779b9u) atomicAdd(sum, total);
}

constexpr int RUNS = 4;

// A ring of STAGES groups in shared memory, each RUNS copies of 16 bytes a thread.
template <int STAGES>
__device__ void read_copies(const char* data, Bytes bytes, unsigned hint, unsigned add, unsigned* sum) {
  extern __shared__ __align__(1024) unsigned char memory[];
  uint4* const ring = reinterpret_cast<uint4*>(memory) + threadIdx.x;
  const Bytes policy = policy_of(hint);
  const Bytes runs = bytes / 16, step = static_cast<Bytes>(gridDim.x) * blockDim.x;
  Bytes asked = static_cast<Bytes>(blockIdx.x) * blockDim.x + threadIdx.x;
  unsigned total = 0;
  const auto next = [&](int stage) {
#pragma unroll
    for (int i = 0; i < RUNS; ++i, asked += step) {
      if (asked >= runs) continue;
      const unsigned into = hopper::shared_address(ring + (stage * RUNS + i) * blockDim.x);
      asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(into),
                   "l"(data + asked * 16), "l"(policy)
                   : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
#pragma unroll
  for (int stage = 0; stage < STAGES; ++stage) next(stage);
  int stage = 0;
  for (Bytes taken = static_cast<Bytes>(blockIdx.x) * blockDim.x + threadIdx.x; taken < runs; taken += RUNS * step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
    if (add) {
#pragma unroll
      for (int i = 0; i < RUNS; ++i) {
        if (taken + i * step < runs) total += words(ring[(stage * RUNS + i) * blockDim.x]);
      }
    }
    next(stage);
    if (++stage == STAGES) stage = 0;
  }
  if (add) atomicAdd(sum, total);
}

}  // namespace

// TMA without a tensor map. A chunk is `chunk / segment` rows of `segment` bytes that lie `pitch` apart, beside others
// that make up a row of `pitch` bytes; one piece where segment and pitch are the chunk.
extern "C" __global__ void read_bulk(const char* data, Bytes bytes, unsigned chunk, unsigned stages, unsigned segment,
                                     unsigned pitch, unsigned hint, unsigned add, unsigned* sum) {
  const Bytes policy = policy_of(hint);
  const unsigned beside = pitch / segment, rows = chunk / segment;
  read_ring(bytes, chunk, stages, add, sum, [&](unsigned number, unsigned into, unsigned barrier) {
    const char* const from =
        data + static_cast<Bytes>(number / beside) * rows * pitch + number % beside * segment;
    for (unsigned row = threadIdx.x; row < rows; row += 32) {
      bulk_load(into + row * segment, from + static_cast<Bytes>(row) * pitch, segment, barrier, policy);
    }
  });
}

// TMA with a tensor map of 16-bit elements, whose box is a chunk.
extern "C" __global__ void read_tensor(Bytes bytes, unsigned chunk, unsigned stages, unsigned segment, unsigned pitch,
                                       unsigned hint, unsigned add, unsigned* sum,
                                       const __grid_constant__ hopper::TensorMap map) {
  const Bytes policy = policy_of(hint);
  const unsigned beside = pitch / segment, rows = chunk / segment;
  if (threadIdx.x == 0) hopper::prefetch_map(&map);
  read_ring(bytes, chunk, stages, add, sum, [&](unsigned number, unsigned into, unsigned barrier) {
    if (threadIdx.x > 0) return;
    const int x = number % beside * (segment / 2), y = number / beside * rows;
    hopper::tma_load_under(into, &map, barrier, x, y, policy);
  });
}

extern "C" __global__ void read_loads_4(const char* data, Bytes bytes, unsigned hint, unsigned add, unsigned* sum) {
  read_loads<4>(data, bytes, hint, add, sum);
}

extern "C" __global__ void read_loads_8(const char* data, Bytes bytes, unsigned hint, unsigned add, unsigned* sum) {
  read_loads<8>(data, bytes, hint, add, sum);
}

extern "C" __global__ void __launch_bounds__(256)
    read_strips_16(const char* data, Bytes bytes, unsigned pitch, unsigned hint, unsigned add, unsigned* sum) {
  read_strips<uint4, 4>(data, bytes, pitch, hint, add, sum);
}

extern "C" __global__ void __launch_bounds__(512)
    read_strips_8(const char* data, Bytes bytes, unsigned pitch, unsigned hint, unsigned add, unsigned* sum) {
  read_strips<uint2, 4>(data, bytes, pitch, hint, add, sum);
}

extern "C" __global__ void read_copies_2(const char* data, Bytes bytes, unsigned hint, unsigned add, unsigned* sum) {
  read_copies<2>(data, bytes, hint, add, sum);
}

extern "C" __global__ void read_copies_4(const char* data, Bytes bytes, unsigned hint, unsigned add, unsigned* sum) {
  read_copies<4>(data, bytes, hint, add, sum);
}
