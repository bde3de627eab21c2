// The words that CUDA adds to C++. `__shared__` is storage of the OS thread that runs the block, so that a
// module's thread-local storage is its block's shared memory; it counts as used elsewhere, lest a compiler take
// what nobody writes for zero. An `extern __shared__` array is rewritten to a pointer after preprocessing
// (translate.py). `__global__` functions stay out of line, so that one copy of each is compiled.
#pragma once

#define __SWEEPER_EMULATOR__ 1
#define __CUDACC__ 1
#ifndef __CUDA_ARCH__
#define __CUDA_ARCH__ 900
#endif

#define __host__
#define __device__
#define __global__ __attribute__((noinline))
#define __constant__
#define __managed__
#define __shared__ thread_local __attribute__((used))
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __inline_hint__ inline
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...)
#define __block_size__(...)
#define __nv_pure__ __attribute__((pure))
#define CUDARTAPI

#ifndef __has_builtin
#define __has_builtin(name) 0
#endif
#if !__has_builtin(__builtin_assume)
#define __builtin_assume(condition) ((void)0)
#endif
#define __assume(condition) __builtin_assume(condition)

// In a module that is checked, SIMT_HERE() names the line that is about to wait; what a kernel calls of
// these headers becomes part of the line that calls it (SIMT_INLINE, and places.py); SIMT_UNCHECKED code is
// nobody's concern.
#ifdef __SWEEPER_CHECKED__
#define SIMT_HERE() simt_here()
#define SIMT_READS_NOBODY(lane, source) simt_reads_nobody(lane, source)
#define SIMT_PART __attribute__((always_inline))
#define SIMT_INLINE inline __attribute__((always_inline, artificial))
#ifdef __clang__
#define SIMT_UNCHECKED __attribute__((no_sanitize("thread", "undefined"), disable_sanitizer_instrumentation))
#else
#define SIMT_UNCHECKED __attribute__((no_sanitize("thread,undefined")))
#endif
#else
#define SIMT_HERE() ((void)0)
#define SIMT_READS_NOBODY(lane, source) ((void)0)
#define SIMT_PART
#define SIMT_INLINE inline
#define SIMT_UNCHECKED
#endif

// The same words for a kernel that brings an emulated way of its own, spelled as CUDA spells its own.
#define __emulated__ SIMT_INLINE
#define __unchecked__ SIMT_UNCHECKED
