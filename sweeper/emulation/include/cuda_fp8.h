// __nv_fp8_e4m3: sign, four bits of exponent biased by 7, three of fraction. No infinities; NaN is all ones but the
// sign. Conversions round to nearest even and saturate, as the toolkit's constructors do.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"

#define __CUDA_FP8_TYPES_EXIST__

typedef unsigned char __nv_fp8_storage_t;

struct __nv_fp8_e4m3 {
  __nv_fp8_storage_t __x;

  __nv_fp8_e4m3() = default;
  explicit __nv_fp8_e4m3(float value) : __x(narrowed(value)) {}
  explicit __nv_fp8_e4m3(double value) : __nv_fp8_e4m3(static_cast<float>(value)) {}
  explicit __nv_fp8_e4m3(__half value) : __nv_fp8_e4m3(static_cast<float>(value)) {}
  explicit __nv_fp8_e4m3(__nv_bfloat16 value) : __nv_fp8_e4m3(static_cast<float>(value)) {}
  explicit __nv_fp8_e4m3(int value) : __nv_fp8_e4m3(static_cast<float>(value)) {}

  explicit operator float() const {
    const unsigned exponent = __x >> 3 & 15, fraction = __x & 7, sign = static_cast<unsigned>(__x & 128) << 24;
    if ((__x & 127) == 127) return simt::bits<float>(0x7fffffffu);
    if (exponent) return simt::bits<float>(sign | (exponent + 120) << 23 | fraction << 20);
    return simt::bits<float>(sign | simt::bits<uint32_t>(static_cast<float>(fraction) * 0x1p-9f));
  }
  explicit operator double() const { return static_cast<double>(static_cast<float>(*this)); }
  explicit operator __half() const { return static_cast<float>(*this); }
  explicit operator __nv_bfloat16() const { return static_cast<float>(*this); }

 private:
  // 448 is the largest, 2^-6 the smallest normal number, below which 2^-9 is the spacing.
  static __nv_fp8_storage_t narrowed(float value) {
    const uint32_t all = simt::bits<uint32_t>(value), sign = all >> 24 & 0x80, rest = all & 0x7fffffffu;
    if (rest > 0x7f800000u) return 0x7f;
    if (rest >= 0x43e80000u) return static_cast<__nv_fp8_storage_t>(sign | 0x7e);
    if (rest < 0x3c800000u) {
      const float steps = __builtin_rintf(simt::bits<float>(rest) * 0x1p9f);
      return static_cast<__nv_fp8_storage_t>(sign | static_cast<uint32_t>(steps));
    }
    const uint32_t rounded = (rest - (120u << 23) + 0x7ffff + (rest >> 20 & 1)) >> 20;
    return static_cast<__nv_fp8_storage_t>(sign | (rounded > 0x7e ? 0x7e : rounded));
  }
};
