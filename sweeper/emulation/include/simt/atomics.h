// Atomic read-modify-write on global and shared memory. Blocks run on several OS threads, so these are the
// host's own atomics; relaxed, as CUDA's are.
#pragma once
#include "abi.h"
#include "keywords.h"

namespace simt {

// Replaces *address by change(*address), whatever the size of T; returns what was there.
template <class T, class Change>
SIMT_INLINE T atomic_update(T* address, Change change) {
  T old, next;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  do {
    next = change(old);
  } while (!__atomic_compare_exchange(address, &old, &next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}

template <class T>
SIMT_INLINE T atomic_exchange(T* address, T value) {
  T old;
  __atomic_exchange(address, &value, &old, __ATOMIC_RELAXED);
  return old;
}

// A failed exchange lets another thread of the block run: it may be the one that holds the lock.
template <class T>
SIMT_INLINE T atomic_compare_exchange(T* address, T expected, T value) {
  if (!__atomic_compare_exchange(address, &expected, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) simt_yield();
  return expected;
}

}  // namespace simt

#define SIMT_ATOMIC(name, type, expression)                                          \
  SIMT_INLINE type name(type* address, type value) {                                      \
    return simt::atomic_update(address, [value](type old) -> type { return expression; }); \
  }                                                                                  \
  SIMT_INLINE type name##_block(type* address, type value) { return name(address, value); } \
  SIMT_INLINE type name##_system(type* address, type value) { return name(address, value); }

#define SIMT_ATOMIC_FETCH(name, builtin, type)                                       \
  SIMT_INLINE type name(type* address, type value) { return builtin(address, value, __ATOMIC_RELAXED); } \
  SIMT_INLINE type name##_block(type* address, type value) { return name(address, value); } \
  SIMT_INLINE type name##_system(type* address, type value) { return name(address, value); }

#define SIMT_ATOMIC_EXCHANGE(type)                                                   \
  SIMT_INLINE type atomicExch(type* address, type value) { return simt::atomic_exchange(address, value); }

#define SIMT_ATOMIC_INTEGER(type)                                                    \
  SIMT_ATOMIC_FETCH(atomicAdd, __atomic_fetch_add, type)                             \
  SIMT_ATOMIC_FETCH(atomicSub, __atomic_fetch_sub, type)                             \
  SIMT_ATOMIC_FETCH(atomicAnd, __atomic_fetch_and, type)                             \
  SIMT_ATOMIC_FETCH(atomicOr, __atomic_fetch_or, type)                               \
  SIMT_ATOMIC_FETCH(atomicXor, __atomic_fetch_xor, type)                             \
  SIMT_ATOMIC(atomicMin, type, value < old ? value : old)                            \
  SIMT_ATOMIC(atomicMax, type, old < value ? value : old)                            \
  SIMT_ATOMIC_EXCHANGE(type)                                                         \
  SIMT_INLINE type atomicCAS(type* address, type expected, type value) {                  \
    return simt::atomic_compare_exchange(address, expected, value);                  \
  }

SIMT_ATOMIC_INTEGER(int)
SIMT_ATOMIC_INTEGER(unsigned int)
SIMT_ATOMIC_INTEGER(long long)
SIMT_ATOMIC_INTEGER(unsigned long long)
SIMT_ATOMIC_INTEGER(unsigned long)
SIMT_ATOMIC(atomicInc, unsigned int, old >= value ? 0 : old + 1)
SIMT_ATOMIC(atomicDec, unsigned int, old == 0 || old > value ? value : old - 1)
SIMT_ATOMIC(atomicAdd, float, old + value)
SIMT_ATOMIC(atomicAdd, double, old + value)
SIMT_ATOMIC_EXCHANGE(float)
SIMT_INLINE unsigned short atomicCAS(unsigned short* address, unsigned short expected, unsigned short value) {
  return simt::atomic_compare_exchange(address, expected, value);
}
#undef SIMT_ATOMIC_INTEGER
#undef SIMT_ATOMIC_EXCHANGE
#undef SIMT_ATOMIC_FETCH
#undef SIMT_ATOMIC
