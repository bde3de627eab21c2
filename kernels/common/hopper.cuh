// Instructions of compute capability 9.0 that CUDA C++ has no name for: copies of boxes by the tensor memory
// accelerator (TMA), the barriers in shared memory that count them, and registers that move from one warpgroup
// to another. Sections named below are those of NVIDIA's "PTX ISA" document.
//
// No CPU stands in for these: a kernel that includes this file runs on a GPU only, and setmaxnreg_… need sm_90a.
// Addresses of shared memory are 32-bit words in its own window, from shared_address.
#pragma once

namespace hopper {

// CUtensorMap, which the driver encodes: 128 opaque bytes. By value, as a `const __grid_constant__` parameter.
struct alignas(64) TensorMap {
  unsigned long long words[16];
};

__device__ __forceinline__ unsigned shared_address(const void* address) {
  return static_cast<unsigned>(__cvta_generic_to_shared(address));
}

// "Parallel Synchronization and Communication Instructions: elect.sync": true in exactly one lane of the warp,
// all 32 lanes of which call it together.
__device__ __forceinline__ bool elect_one() {
  unsigned elected;
  asm volatile(
      "{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
  return elected != 0;
}

// "Parallel Synchronization and Communication Instructions: mbarrier". A barrier is 8 bytes of shared memory. A
// phase of it ends when `arrivals` threads have arrived and all bytes that were announced have come; phases are
// told apart by their parity, 0 for the first.
__device__ __forceinline__ void mbarrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Lets TMA, which works in the asynchronous proxy, and other blocks of the cluster see barriers that were just
// initialised ("membar / fence": fence.mbarrier_init).
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives once, with the semantics of a release for the block. The form for a cluster,
// mbarrier.arrive.release.cluster, compiles to a fence of the whole GPU, MEMBAR.ALL.GPU.
__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives at the barrier of the same place in block `rank` of the cluster ("mapa", "mbarrier.arrive").
__device__ __forceinline__ void mbarrier_arrive_at(unsigned barrier, unsigned rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// Arrives, and announces `bytes` that copies will bring ("mbarrier.expect_tx operation").
__device__ __forceinline__ void mbarrier_arrive_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Waits until the phase of that parity has ended ("mbarrier.test_wait / mbarrier.try_wait"): at once where the
// barrier is in the other phase already. A barrier that is new counts as having ended a phase of parity 1.
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred ended;\nagain_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
      "@ended bra.uni done_%=;\nbra.uni again_%=;\ndone_%=:\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// "Data Movement and Conversion Instructions: cp.async.bulk.tensor": starts a copy of the map's box whose first
// element lies at column x of row y, to `destination` (aligned to 128 bytes; to 1024 where the map is swizzled
// by 128). What lies outside the tensor arrives as the map's fill, and counts among the bytes that `barrier`
// waits for. One thread calls it.
__device__ __forceinline__ void tma_load(unsigned destination, const TensorMap* map, unsigned barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
      "[%2];" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}

// The same to all blocks of the cluster whose bit is set in `blocks`, at the same place in each; every one's own
// barrier counts its bytes.
__device__ __forceinline__ void tma_load_multicast(unsigned destination, const TensorMap* map, unsigned barrier,
                                                   int x, int y, unsigned short blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%3, %4}], [%2], %5;" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(blocks)
      : "memory");
}

// "createpolicy": how the second-level cache shall treat what a copy reads. evict_last keeps it as long as it can,
// evict_first lets it go first.
__device__ __forceinline__ unsigned long long policy_evict_last() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ unsigned long long policy_evict_first() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// tma_load and tma_load_multicast with such a policy (".L2::cache_hint").
__device__ __forceinline__ void tma_load_hinted(unsigned destination, const TensorMap* map, unsigned barrier, int x,
                                                int y, unsigned long long policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%3, %4}], [%2], %5;" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void tma_load_multicast_hinted(unsigned destination, const TensorMap* map,
                                                          unsigned barrier, int x, int y, unsigned short blocks,
                                                          unsigned long long policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(blocks), "l"(policy)
      : "memory");
}

// The other direction: starts a copy of the map's box from shared memory at `source`, aligned as for tma_load. What
// lies outside the tensor is not written. Threads that wrote the box fence_async_proxy() and meet before one calls it.
__device__ __forceinline__ void tma_store(const TensorMap* map, unsigned source, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
               "r"(source), "r"(x), "r"(y)
               : "memory");
}

// "cp.async.bulk.commit_group": one group of the copies to global memory that this thread has started.
__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// "cp.async.bulk.wait_group": until at most the last `Groups` groups of this thread still read shared memory.
template <int Groups>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Groups) : "memory");
}

// The same until they have been written too.
template <int Groups>
__device__ __forceinline__ void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Groups) : "memory");
}

// "barrier{.cta}": `threads` threads of the block, whole warps, meet at named barrier `index`, 1 to 15 (0 is
// __syncthreads).
__device__ __forceinline__ void named_barrier(int index, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(index), "r"(threads) : "memory");
}

// Counts this warp in without waiting: of those that named_barrier(index, threads) waits for.
__device__ __forceinline__ void named_barrier_arrive(int index, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(index), "r"(threads) : "memory");
}

// "stmatrix": the warp stores four 8×8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix
// l / 8, 16 bytes at a multiple of 16. Registers are as ldmatrix gives them.
__device__ __forceinline__ void stmatrix_x4(unsigned row, unsigned a, unsigned b, unsigned c, unsigned d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}

// Two of them, each stored transposed: memory's row i is column i of the matrix. Lanes 0 to 15 give the addresses.
__device__ __forceinline__ void stmatrix_x2_trans(unsigned row, unsigned a, unsigned b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(a), "r"(b) : "memory");
}

// "prefetch, prefetchu": brings the map into the cache that TMA reads it from.
__device__ __forceinline__ void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// "membar / fence": orders this thread's ordinary accesses to shared memory before later ones of TMA.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// "barrier.cluster": all threads of all blocks of the cluster meet.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}

__device__ __forceinline__ unsigned cluster_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// "Miscellaneous Instructions: setmaxnreg": all four warps of a warpgroup give registers back, or wait until
// they have `Registers` each (24 to 256, a multiple of 8). Needs a register limit at launch, as __launch_bounds__
// gives, and sm_90a.
template <int Registers>
__device__ __forceinline__ void setmaxnreg_decrease() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

template <int Registers>
__device__ __forceinline__ void setmaxnreg_increase() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

}  // namespace hopper
