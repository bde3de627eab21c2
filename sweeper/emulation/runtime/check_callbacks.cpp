// What compilers call in code built with -fsanitize=thread (LLVM's ThreadSanitizer.cpp, GCC's sanitizer.def).
#include <string.h>

#include "check.h"

using simt::check_access;
using simt::check_volatile;
using simt::Doing;

// clang-format off: lists of macros
#define SIMT_CALLBACK extern "C" __attribute__((visibility("default")))
#define SIMT_CODE simt::code_at(__builtin_return_address(0))

SIMT_CALLBACK void __tsan_init() {}
SIMT_CALLBACK void __tsan_func_entry(void*) {}
SIMT_CALLBACK void __tsan_func_exit() { simt::check_function_ends(SIMT_CODE); }
SIMT_CALLBACK void __tsan_vptr_update(void**, void*) {}
SIMT_CALLBACK void __tsan_vptr_read(void**) {}
SIMT_CALLBACK void __tsan_atomic_thread_fence(int) { simt::fence_passed(); }
SIMT_CALLBACK void __tsan_atomic_signal_fence(int) {}

SIMT_CALLBACK void __tsan_read_range(void* a, unsigned long bytes) {
  check_access(a, bytes, Doing::kRead, SIMT_CODE);
}
SIMT_CALLBACK void __tsan_write_range(void* a, unsigned long bytes) {
  check_access(a, bytes, Doing::kWrite, SIMT_CODE);
}

#define SIMT_ACCESS(check, prefix, bytes)                                                            \
  SIMT_CALLBACK void __tsan_##prefix##read##bytes(void* a) { check(a, bytes, Doing::kRead, SIMT_CODE); } \
  SIMT_CALLBACK void __tsan_##prefix##write##bytes(void* a) { check(a, bytes, Doing::kWrite, SIMT_CODE); }
#define SIMT_ACCESSES(check, prefix) \
  SIMT_ACCESS(check, prefix, 1)      \
  SIMT_ACCESS(check, prefix, 2)      \
  SIMT_ACCESS(check, prefix, 4)      \
  SIMT_ACCESS(check, prefix, 8)      \
  SIMT_ACCESS(check, prefix, 16)

SIMT_ACCESSES(check_access, )
SIMT_ACCESSES(check_access, unaligned_)
SIMT_ACCESSES(check_volatile, volatile_)
SIMT_ACCESSES(check_volatile, unaligned_volatile_)

#define SIMT_BOTH(prefix, bytes)                                 \
  SIMT_CALLBACK void __tsan_##prefix##read_write##bytes(void* a) { \
    check_access(a, bytes, Doing::kRead, SIMT_CODE);             \
    check_access(a, bytes, Doing::kWrite, SIMT_CODE);            \
  }

SIMT_BOTH(, 1)
SIMT_BOTH(, 2)
SIMT_BOTH(, 4)
SIMT_BOTH(, 8)
SIMT_BOTH(, 16)
SIMT_BOTH(unaligned_, 2)
SIMT_BOTH(unaligned_, 4)
SIMT_BOTH(unaligned_, 8)
SIMT_BOTH(unaligned_, 16)

// A module's calls of memcpy and its like have become calls of simt_…; newer compilers call the others.
#define SIMT_MEMORY(prefix)                                                              \
  SIMT_CALLBACK void* prefix##memcpy(void* to, const void* from, unsigned long bytes) {  \
    check_access(from, bytes, Doing::kRead, SIMT_CODE);                                  \
    check_access(to, bytes, Doing::kWrite, SIMT_CODE);                                   \
    return memcpy(to, from, bytes);                                                      \
  }                                                                                      \
  SIMT_CALLBACK void* prefix##memmove(void* to, const void* from, unsigned long bytes) { \
    check_access(from, bytes, Doing::kRead, SIMT_CODE);                                  \
    check_access(to, bytes, Doing::kWrite, SIMT_CODE);                                   \
    return memmove(to, from, bytes);                                                     \
  }                                                                                      \
  SIMT_CALLBACK void* prefix##memset(void* to, int value, unsigned long bytes) {         \
    check_access(to, bytes, Doing::kWrite, SIMT_CODE);                                   \
    return memset(to, value, bytes);                                                     \
  }

SIMT_MEMORY(simt_)
SIMT_MEMORY(__tsan_)

#define SIMT_STRONG(doing) \
  check_access(const_cast<void*>(static_cast<const volatile void*>(a)), sizeof *a, doing, SIMT_CODE)

#define SIMT_UPDATE(bits, type, name)                                                  \
  SIMT_CALLBACK type __tsan_atomic##bits##_##name(volatile type* a, type value, int) { \
    SIMT_STRONG(Doing::kUpdate);                                                       \
    return __atomic_##name(a, value, __ATOMIC_RELAXED);                                \
  }

#define SIMT_EXCHANGE_IF(bits, type, strength)                                                          \
  SIMT_CALLBACK int __tsan_atomic##bits##_compare_exchange_##strength(volatile type* a, type* expected, \
                                                                      type value, int, int) {           \
    SIMT_STRONG(Doing::kUpdate);                                                                        \
    return __atomic_compare_exchange_n(a, expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);  \
  }

#define SIMT_ATOMICS(bits, type)                                                                  \
  SIMT_UPDATE(bits, type, fetch_add)                                                              \
  SIMT_UPDATE(bits, type, fetch_sub)                                                              \
  SIMT_UPDATE(bits, type, fetch_and)                                                              \
  SIMT_UPDATE(bits, type, fetch_or)                                                               \
  SIMT_UPDATE(bits, type, fetch_xor)                                                              \
  SIMT_UPDATE(bits, type, fetch_nand)                                                             \
  SIMT_EXCHANGE_IF(bits, type, strong)                                                            \
  SIMT_EXCHANGE_IF(bits, type, weak)                                                              \
  SIMT_CALLBACK type __tsan_atomic##bits##_exchange(volatile type* a, type value, int) {          \
    SIMT_STRONG(Doing::kUpdate);                                                                  \
    return __atomic_exchange_n(a, value, __ATOMIC_RELAXED);                                       \
  }                                                                                               \
  SIMT_CALLBACK type __tsan_atomic##bits##_load(const volatile type* a, int) {                    \
    SIMT_STRONG(Doing::kStrongRead);                                                              \
    return __atomic_load_n(a, __ATOMIC_RELAXED);                                                  \
  }                                                                                               \
  SIMT_CALLBACK void __tsan_atomic##bits##_store(volatile type* a, type value, int) {             \
    SIMT_STRONG(Doing::kStrongWrite);                                                             \
    __atomic_store_n(a, value, __ATOMIC_RELAXED);                                                 \
  }                                                                                               \
  SIMT_CALLBACK type __tsan_atomic##bits##_compare_exchange_val(volatile type* a, type expected,  \
                                                                type value, int, int) {           \
    SIMT_STRONG(Doing::kUpdate);                                                                  \
    __atomic_compare_exchange_n(a, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);  \
    return expected;                                                                              \
  }

SIMT_ATOMICS(8, uint8_t)
SIMT_ATOMICS(16, uint16_t)
SIMT_ATOMICS(32, uint32_t)
SIMT_ATOMICS(64, uint64_t)
