// What an element type brings along: the type it is summed in, the type a result is stored in, and
// the conversions between them. A kernel written against Element<T> serves every precision class.
#pragma once

template <typename T>
struct Element {
  using Accumulator = T;
  using Output = T;
};

template <>
struct Element<signed char> {
  using Accumulator = int;
  using Output = int;
};

// cuda_fp16.h and cuda_bf16.h are included before this file where the class needs them.
#ifdef __CUDA_FP16_TYPES_EXIST__
template <>
struct Element<__half> {
  using Accumulator = float;
  using Output = __half;
};
#endif
#ifdef __CUDA_BF16_TYPES_EXIST__
template <>
struct Element<__nv_bfloat16> {
  using Accumulator = float;
  using Output = __nv_bfloat16;
};
#endif

template <typename T>
using Accumulator = typename Element<T>::Accumulator;
template <typename T>
using Output = typename Element<T>::Output;

template <typename T>
__device__ __forceinline__ Accumulator<T> widen(T value) {
  return static_cast<Accumulator<T>>(value);
}

template <typename T>
__device__ __forceinline__ Output<T> narrow(Accumulator<T> value) {
  return static_cast<Output<T>>(value);
}
