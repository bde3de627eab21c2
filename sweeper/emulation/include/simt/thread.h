// Where a thread is, barriers of its block, and leaving it: traps and printf.
#pragma once
#include "abi.h"

#define threadIdx (simt_thread->index)
#define blockIdx (simt_block.index)
#define blockDim (simt_block.size)
#define gridDim (simt_block.grid)
constexpr int warpSize = simt::kWarpSize;

// Macros, because a barrier is reported by its line.
#define __syncthreads() (SIMT_HERE(), simt_sync_block(__LINE__))
#define __syncthreads_count(predicate) (SIMT_HERE(), simt::sync_block_count(__LINE__, (predicate) != 0))
#define __syncthreads_and(predicate) (SIMT_HERE(), simt::sync_block_and(__LINE__, (predicate) != 0))
#define __syncthreads_or(predicate) (SIMT_HERE(), simt::sync_block_or(__LINE__, (predicate) != 0))

#define __trap() simt_trap("__trap()", __FILE__, __LINE__)
#define __brkpt() simt_trap("__brkpt()", __FILE__, __LINE__)
#define printf(...) simt_print(__VA_ARGS__)

namespace simt {

inline int sync_block_count(int line, int predicate) {
  unsigned arrived;
  return static_cast<int>(simt_sync_block_count(line, predicate, &arrived));
}

inline int sync_block_and(int line, int predicate) {
  unsigned arrived;
  return simt_sync_block_count(line, predicate, &arrived) == arrived;
}

inline int sync_block_or(int line, int predicate) {
  unsigned arrived;
  return simt_sync_block_count(line, predicate, &arrived) != 0;
}

}  // namespace simt

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#ifdef __SWEEPER_CHECKED__
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#else
inline void __threadfence_block() { __asm__ volatile("" ::: "memory"); }
#endif
inline void __nanosleep(unsigned) { simt_yield(); }

// clock() is the C library's own: CUDA's has the same name and type.
inline long long clock64() { return simt_clock(); }
inline unsigned long long __globaltimer() { return static_cast<unsigned long long>(simt_clock()); }
