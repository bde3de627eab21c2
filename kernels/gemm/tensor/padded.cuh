// Rows that TMA cannot read, because they do not begin at multiples of 16 bytes, are copied to where they do.
#pragma once

#include "../../common/grid.cuh"

// Copies A to a_copy where lda is no multiple of 8, and B to b_copy where ldb is none, by all threads of all blocks,
// which have met when it returns. A transposed operand lies in memory as K×M, or N×K. AT_ONCE: units of 16 bytes that
// a thread has under way.
//
// Out of line, so that where nothing is copied a kernel's first instructions are next to each other: from a cold cache
// they come in the order of their addresses. One call for both operands keeps compile times low.
template <typename T, bool TRANSPOSE_A, bool TRANSPOSE_B, int AT_ONCE>
__device__ __noinline__ void copy_padded_operands(const T* A, const T* B, T* a_copy, T* b_copy, unsigned* met, int M,
                                                  int N, int K, int lda, int ldb) {
#pragma unroll 1
  for (int operand = 0; operand < 2; ++operand) {
    const int ld = operand ? ldb : lda;
    if (ld % 8 == 0) continue;
    const int height = operand ? (TRANSPOSE_B ? N : K) : TRANSPOSE_A ? K : M;
    const int length = operand ? (TRANSPOSE_B ? K : N) : TRANSPOSE_A ? M : K;
    grid::copy_padded<T, AT_ONCE>(operand ? b_copy : a_copy, (length + 7) / 8 * 8, operand ? B : A, ld, height, length);
  }
  grid::sync(met);
}
