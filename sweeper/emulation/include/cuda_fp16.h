// __half and __half2.
#pragma once
#include "cuda_runtime.h"
#include "simt/narrow.h"

#define __CUDA_FP16_TYPES_EXIST__

using __half = simt::Narrow<simt::Binary16>;
using __half2 = simt::Pair<simt::Binary16>;
using half = __half;
using half2 = __half2;

inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline __half __double2half(double x) { return x; }
inline float __half2float(__half x) { return x; }
inline __half2 __floats2half2_rn(float low, float high) { return {low, high}; }
inline __half2 __float2half2_rn(float x) { return {x, x}; }
inline __half2 __float22half2_rn(float2 x) { return {x.x, x.y}; }
inline float2 __half22float2(__half2 x) { return {x.x, x.y}; }
inline __half2 __half2half2(__half x) { return {x, x}; }
inline __half2 make_half2(__half low, __half high) { return {low, high}; }
inline __half2 __halves2half2(__half low, __half high) { return {low, high}; }
inline __half __low2half(__half2 x) { return x.x; }
inline __half __high2half(__half2 x) { return x.y; }
inline float __low2float(__half2 x) { return x.x; }
inline float __high2float(__half2 x) { return x.y; }
inline __half2 __low2half2(__half2 x) { return {x.x, x.x}; }
inline __half2 __high2half2(__half2 x) { return {x.y, x.y}; }
inline __half2 __lowhigh2highlow(__half2 x) { return {x.y, x.x}; }
inline __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
inline __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
inline unsigned short __half_as_ushort(__half x) { return x.raw(); }
inline short __half_as_short(__half x) { return static_cast<short>(x.raw()); }
inline __half __ushort_as_half(unsigned short x) { return __half::from_raw(x); }
inline __half __short_as_half(short x) { return __half::from_raw(static_cast<unsigned short>(x)); }
inline __half __int2half_rn(int x) { return x; }
inline __half __uint2half_rn(unsigned x) { return x; }
inline int __half2int_rn(__half x) { return __float2int_rn(x); }
inline int __half2int_rz(__half x) { return __float2int_rz(x); }
