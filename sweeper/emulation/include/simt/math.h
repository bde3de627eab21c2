// CUDA's mathematical functions and intrinsics. Hardware approximations (__expf, rsqrtf, …) are the exact
// functions here: no less accurate than what a GPU gives.
#pragma once
#include <math.h>

#include "abi.h"

namespace simt {

template <class T> struct only_float;
template <> struct only_float<float> { using type = float; using truth = bool; };
template <class T> struct only_real;
template <> struct only_real<float> { using truth = bool; };
template <> struct only_real<double> { using truth = bool; };

template <class To, class From>
inline To bits(From value) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To result;
  __builtin_memcpy(&result, &value, sizeof result);
  return result;
}

// Keeps a product or sum from being contracted into a fused multiply-add.
#if defined(__x86_64__)
template <class T> inline T rounded(T value) { __asm__("" : "+x"(value)); return value; }
#elif defined(__aarch64__)
template <class T> inline T rounded(T value) { __asm__("" : "+w"(value)); return value; }
#else
template <class T> inline T rounded(T value) { volatile T kept = value; return kept; }
#endif

}  // namespace simt

// C++ overloads for float. Templates, so that the library's own (plain functions) are preferred where a
// kernel includes <cmath> and names both.
#if !__has_include(<__config>)
#undef isnan
#undef isinf
#undef isfinite
#undef signbit
template <class T> inline typename simt::only_real<T>::truth isnan(T x) { return __builtin_isnan(x); }
template <class T> inline typename simt::only_real<T>::truth isinf(T x) { return __builtin_isinf(x); }
template <class T> inline typename simt::only_real<T>::truth isfinite(T x) { return __builtin_isfinite(x); }
template <class T> inline typename simt::only_real<T>::truth signbit(T x) { return __builtin_signbit(x); }

#define SIMT_UNARY(name) \
  template <class T> inline typename simt::only_float<T>::type name(T x) { return __builtin_##name##f(x); }
#define SIMT_BINARY(name) \
  template <class T> inline typename simt::only_float<T>::type name(T x, T y) { return __builtin_##name##f(x, y); }
SIMT_UNARY(sqrt) SIMT_UNARY(cbrt) SIMT_UNARY(fabs)
SIMT_UNARY(exp) SIMT_UNARY(exp2) SIMT_UNARY(expm1) SIMT_UNARY(log) SIMT_UNARY(log2) SIMT_UNARY(log10) SIMT_UNARY(log1p)
SIMT_UNARY(sin) SIMT_UNARY(cos) SIMT_UNARY(tan) SIMT_UNARY(asin) SIMT_UNARY(acos) SIMT_UNARY(atan)
SIMT_UNARY(sinh) SIMT_UNARY(cosh) SIMT_UNARY(tanh) SIMT_UNARY(asinh) SIMT_UNARY(acosh) SIMT_UNARY(atanh)
SIMT_UNARY(erf) SIMT_UNARY(erfc) SIMT_UNARY(tgamma) SIMT_UNARY(lgamma)
SIMT_UNARY(ceil) SIMT_UNARY(floor) SIMT_UNARY(trunc) SIMT_UNARY(round) SIMT_UNARY(rint) SIMT_UNARY(nearbyint)
SIMT_BINARY(pow) SIMT_BINARY(atan2) SIMT_BINARY(fmod) SIMT_BINARY(remainder) SIMT_BINARY(hypot)
SIMT_BINARY(fmin) SIMT_BINARY(fmax) SIMT_BINARY(fdim) SIMT_BINARY(copysign) SIMT_BINARY(nextafter)
#undef SIMT_UNARY
#undef SIMT_BINARY
template <class T> inline typename simt::only_float<T>::type pow(T x, int n) { return __builtin_powif(x, n); }
template <class T> inline typename simt::only_float<T>::type ldexp(T x, int n) { return __builtin_ldexpf(x, n); }
template <class T> inline typename simt::only_float<T>::type fma(T x, T y, T z) { return __builtin_fmaf(x, y, z); }
#endif

// min and max of every pair of types that CUDA has them for; the result has the pair's common type.
#define SIMT_EXTREMES(a_type, b_type, type)                                                              \
  inline constexpr type min(a_type a, b_type b) { return static_cast<type>(b) < static_cast<type>(a) ? b : a; } \
  inline constexpr type max(a_type a, b_type b) { return static_cast<type>(a) < static_cast<type>(b) ? b : a; }
#define SIMT_EXTREMES_BOTH(a_type, b_type, type) SIMT_EXTREMES(a_type, b_type, type) SIMT_EXTREMES(b_type, a_type, type)
SIMT_EXTREMES(int, int, int)
SIMT_EXTREMES(unsigned, unsigned, unsigned)
SIMT_EXTREMES(long, long, long)
SIMT_EXTREMES(unsigned long, unsigned long, unsigned long)
SIMT_EXTREMES(long long, long long, long long)
SIMT_EXTREMES(unsigned long long, unsigned long long, unsigned long long)
SIMT_EXTREMES_BOTH(int, unsigned, unsigned)
SIMT_EXTREMES_BOTH(long, unsigned long, unsigned long)
SIMT_EXTREMES_BOTH(long long, unsigned long long, unsigned long long)
#undef SIMT_EXTREMES_BOTH
#undef SIMT_EXTREMES
// The operand that is a number wins over a NaN.
inline float min(float a, float b) { return __builtin_fminf(a, b); }
inline float max(float a, float b) { return __builtin_fmaxf(a, b); }
inline double min(double a, double b) { return __builtin_fmin(a, b); }
inline double max(double a, double b) { return __builtin_fmax(a, b); }
inline double min(float a, double b) { return __builtin_fmin(a, b); }
inline double max(float a, double b) { return __builtin_fmax(a, b); }
inline double min(double a, float b) { return __builtin_fmin(a, b); }
inline double max(double a, float b) { return __builtin_fmax(a, b); }

inline float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return 1.0f / __builtin_cbrtf(x); }
inline float sinpif(float x) { return static_cast<float>(__builtin_sin(x * 3.14159265358979323846)); }
inline float cospif(float x) { return static_cast<float>(__builtin_cos(x * 3.14159265358979323846)); }
inline float normcdff(float x) { return 0.5f * __builtin_erfcf(x * -0.70710678118654752f); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float fdividef(float x, float y) { return x / y; }
inline float __fdividef(float x, float y) { return x / y; }

// Macros, because the C library declares functions of these names.
#define __expf(x) __builtin_expf(x)
#define __exp10f(x) __builtin_exp10f(x)
#define __logf(x) __builtin_logf(x)
#define __log2f(x) __builtin_log2f(x)
#define __log10f(x) __builtin_log10f(x)
#define __powf(x, y) __builtin_powf(x, y)
#define __sinf(x) __builtin_sinf(x)
#define __cosf(x) __builtin_cosf(x)
#define __tanf(x) __builtin_tanf(x)
#define __sincosf(x, sine, cosine) (*(sine) = __builtin_sinf(x), *(cosine) = __builtin_cosf(x), void())

// Arithmetic with an explicit rounding: never contracted; only rounding to nearest is distinguished.
#define SIMT_ROUNDED(suffix)                                                                    \
  inline float __fadd_##suffix(float a, float b) { return simt::rounded(a + b); }               \
  inline float __fsub_##suffix(float a, float b) { return simt::rounded(a - b); }               \
  inline float __fmul_##suffix(float a, float b) { return simt::rounded(a * b); }               \
  inline float __fdiv_##suffix(float a, float b) { return a / b; }                              \
  inline float __fsqrt_##suffix(float a) { return __builtin_sqrtf(a); }                         \
  inline float __frcp_##suffix(float a) { return 1.0f / a; }                                    \
  inline float __fmaf_##suffix(float a, float b, float c) { return __builtin_fmaf(a, b, c); }   \
  inline double __dadd_##suffix(double a, double b) { return simt::rounded(a + b); }            \
  inline double __dsub_##suffix(double a, double b) { return simt::rounded(a - b); }            \
  inline double __dmul_##suffix(double a, double b) { return simt::rounded(a * b); }            \
  inline double __ddiv_##suffix(double a, double b) { return a / b; }                           \
  inline double __dsqrt_##suffix(double a) { return __builtin_sqrt(a); }                        \
  inline double __drcp_##suffix(double a) { return 1.0 / a; }                                   \
  inline double __fma_##suffix(double a, double b, double c) { return __builtin_fma(a, b, c); }
SIMT_ROUNDED(rn) SIMT_ROUNDED(rz) SIMT_ROUNDED(ru) SIMT_ROUNDED(rd)
#undef SIMT_ROUNDED
inline float __frsqrt_rn(float a) { return rsqrtf(a); }

// Conversions.
inline int __float_as_int(float x) { return simt::bits<int>(x); }
inline unsigned __float_as_uint(float x) { return simt::bits<unsigned>(x); }
inline float __int_as_float(int x) { return simt::bits<float>(x); }
inline float __uint_as_float(unsigned x) { return simt::bits<float>(x); }
inline long long __double_as_longlong(double x) { return simt::bits<long long>(x); }
inline double __longlong_as_double(long long x) { return simt::bits<double>(x); }
inline int __double2hiint(double x) { return static_cast<int>(simt::bits<unsigned long long>(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(simt::bits<unsigned long long>(x)); }
inline double __hiloint2double(int high, int low) {
  const unsigned long long upper = static_cast<unsigned>(high);
  return simt::bits<double>(upper << 32 | static_cast<unsigned>(low));
}

namespace simt {

// Out-of-range values saturate and NaN gives 0, as the hardware's conversions do.
template <class To, class From>
inline To saturated(From value) {
  constexpr bool is_signed = static_cast<To>(-1) < static_cast<To>(0);
  constexpr int digits = sizeof(To) * 8 - is_signed;
  constexpr To largest = static_cast<To>(~0ull >> (64 - digits));
  constexpr To smallest = is_signed ? static_cast<To>(-largest - 1) : 0;
  if (!(value == value)) return 0;
  if (value <= static_cast<From>(smallest)) return smallest;
  if (value >= static_cast<From>(largest)) return largest;
  return static_cast<To>(value);
}

}  // namespace simt

#define SIMT_TO_INTEGER(from, from_type, to, to_type, suffix)                                     \
  inline to_type __##from##2##to##_rn(from_type x) { return simt::saturated<to_type>(__builtin_rint##suffix(x)); }  \
  inline to_type __##from##2##to##_rz(from_type x) { return simt::saturated<to_type>(__builtin_trunc##suffix(x)); } \
  inline to_type __##from##2##to##_ru(from_type x) { return simt::saturated<to_type>(__builtin_ceil##suffix(x)); }  \
  inline to_type __##from##2##to##_rd(from_type x) { return simt::saturated<to_type>(__builtin_floor##suffix(x)); } \
  inline from_type __##to##2##from##_rn(to_type x) { return static_cast<from_type>(x); }
SIMT_TO_INTEGER(float, float, int, int, f)
SIMT_TO_INTEGER(float, float, uint, unsigned, f)
SIMT_TO_INTEGER(float, float, ll, long long, f)
SIMT_TO_INTEGER(float, float, ull, unsigned long long, f)
SIMT_TO_INTEGER(double, double, int, int, )
SIMT_TO_INTEGER(double, double, uint, unsigned, )
SIMT_TO_INTEGER(double, double, ll, long long, )
SIMT_TO_INTEGER(double, double, ull, unsigned long long, )
#undef SIMT_TO_INTEGER
inline float __double2float_rn(double x) { return static_cast<float>(x); }

// Integers.
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
inline unsigned long long __brevll(unsigned long long x) {
  const unsigned long long low = __brev(static_cast<unsigned>(x));
  return low << 32 | __brev(static_cast<unsigned>(x >> 32));
}
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline long long __mul64hi(long long a, long long b) {
  return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline int __mul24(int a, int b) {
  return static_cast<int>(static_cast<unsigned>(a << 8 >> 8) * static_cast<unsigned>(b << 8 >> 8));
}
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
inline unsigned __sad(int a, int b, unsigned sum) {
  const unsigned difference = static_cast<unsigned>(a) - static_cast<unsigned>(b);
  return sum + (a < b ? 0u - difference : difference);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(((static_cast<unsigned long long>(high) << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> (shift & 31));
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(b) << 32 | a;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned choice = selector >> (4 * i);
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (choice & 7))) & 0xff;
    if (choice & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}
inline int __dp4a(int a, int b, int sum) {
  unsigned total = static_cast<unsigned>(sum);
  for (int i = 0; i < 32; i += 8)
    total += static_cast<unsigned>(static_cast<signed char>(a >> i) * static_cast<signed char>(b >> i));
  return static_cast<int>(total);
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
  for (int i = 0; i < 32; i += 8) sum += (a >> i & 0xff) * (b >> i & 0xff);
  return sum;
}
