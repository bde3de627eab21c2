// Element for float8_e4m3: summed in float, stored in bfloat16 as cuBLASLt does. A header of its own, so that kernels
// without the class are not other kernels than before.
#pragma once
#include "element.cuh"

// cuda_fp8.h, which brings bfloat16, is included before this file where the class needs it.
#ifdef __CUDA_FP8_TYPES_EXIST__
template <>
struct Element<__nv_fp8_e4m3> {
  using Accumulator = float;
  using Output = __nv_bfloat16;
};

template <>
__device__ __forceinline__ __nv_bfloat16 narrow<__nv_fp8_e4m3>(float value) {
  return __float2bfloat16(value);
}
#endif
