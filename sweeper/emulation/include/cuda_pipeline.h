// Asynchronous copies from global to shared memory. A copy takes place only when it is waited for, so that a
// missing wait reads what was there before.
#pragma once
#include "cuda_runtime.h"

SIMT_INLINE void __pipeline_memcpy_async(void* destination, const void* source, size_t bytes,
                                         size_t zero_bytes = 0) {
  simt_copy_async(destination, source, static_cast<unsigned>(bytes), static_cast<unsigned>(zero_bytes));
}
SIMT_INLINE void __pipeline_commit() { simt_copy_commit(); }
SIMT_INLINE void __pipeline_wait_prior(size_t groups_left) {
  simt_copy_wait(static_cast<unsigned>(groups_left));
}
