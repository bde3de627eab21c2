// What the blocks of a thread block cluster say to each other through their shared memories (compute capability
// 9.0). Sections named below are those of NVIDIA's "PTX ISA" document. Addresses of shared memory are 32-bit
// words, as in hopper.cuh.
#pragma once

#include "hopper.cuh"

namespace hopper {

// "Data Movement and Conversion Instructions: mapa": where in the cluster's window lies what has `address` in
// block `rank`.
__device__ __forceinline__ unsigned shared_address_in(unsigned address, unsigned rank) {
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// "barrier.cluster": the two halves of a meeting of all threads of all blocks. The first orders nothing by itself;
// after mbarrier_init_fence it is enough for barriers that were just initialised.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// "Data Movement and Conversion Instructions: st.async": writes into the shared memory of a block of the cluster
// and counts the bytes at `barrier`, which is one of the same block. Both are addresses in the cluster's window.
__device__ __forceinline__ void store_async(unsigned address, const uint4& value, unsigned barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                   address),
               "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "r"(barrier)
               : "memory");
}

__device__ __forceinline__ void store_async(unsigned address, const uint2& value, unsigned barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(address),
               "r"(value.x), "r"(value.y), "r"(barrier)
               : "memory");
}

// mbarrier_wait that also sees what other blocks of the cluster wrote ("mbarrier.test_wait / mbarrier.try_wait").
__device__ __forceinline__ void mbarrier_wait_cluster(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred ended;\nagain_%=:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 ended, [%0], %1;\n"
      "@ended bra done_%=;\nbra again_%=;\ndone_%=:\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// "Data Movement and Conversion Instructions: createpolicy": what is read under it is the first to leave the
// second-level cache. A copy of what nobody will read again then takes no place from what somebody will, nor waits
// until that is written back.
__device__ __forceinline__ unsigned long long evict_first_policy() {
  unsigned long long policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// tma_load under a cache policy.
__device__ __forceinline__ void tma_load_under(unsigned destination, const TensorMap* map, unsigned barrier, int x,
                                               int y, unsigned long long policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%3, %4}], [%2], %5;" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "l"(policy)
      : "memory");
}

}  // namespace hopper
