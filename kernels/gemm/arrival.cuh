// Blocks that share a result and count themselves in: the last one to come finishes it (rungs 9 and 10).
#pragma once

// Counts this block in and says, to all of its threads, whether it is the last of `parts`; the counter is then zero
// again. What the block wrote before is seen by the last one. `last` lies in shared memory.
__device__ __forceinline__ bool arrives_last(unsigned* counter, int parts, bool& last) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(counter, 1u) == static_cast<unsigned>(parts - 1);
    if (last) atomicExch(counter, 0u);
    __threadfence();
  }
  __syncthreads();
  return last;
}
