// 16-bit floating point: __half and __nv_bfloat16 as two formats of one class. Every operation is done in
// float and rounded once to nearest even, which for + - * / and sqrt equals rounding the exact result.
// A default constructor that does nothing keeps shared arrays of these plain bytes.
#pragma once
#include "abi.h"
#include "atomics.h"
#include "keywords.h"
#include "math.h"

namespace simt {

#if defined(__clang__) && __clang_major__ < 15
#define SIMT_SOFTWARE_HALF 1
#endif

#if defined(__FLT16_MANT_DIG__) && !defined(SIMT_SOFTWARE_HALF)
struct Binary16 {
  using Storage = _Float16;
  static float widen(Storage value) { return static_cast<float>(value); }
  static Storage narrow(float value) { return static_cast<Storage>(value); }
};
#else
// For compilers without the type. 112 is the difference of the exponents' biases; 2^-14 is the smallest
// normal number, below which 2^-24 is the spacing.
struct Binary16 {
  using Storage = uint16_t;
  static float widen(Storage value) {
    const uint32_t sign = static_cast<uint32_t>(value & 0x8000) << 16, rest = value & 0x7fffu;
    if (rest >= 0x7c00) return bits<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    if (rest >= 0x0400) return bits<float>(sign | (rest << 13) + (112u << 23));
    const float magnitude = static_cast<float>(rest) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  static Storage narrow(float value) {
    const uint32_t all = bits<uint32_t>(value), sign = all >> 16 & 0x8000, rest = all & 0x7fffffffu;
    if (rest > 0x7f800000u) return static_cast<Storage>(sign | 0x7e00 | (rest >> 13 & 0x1ff));
    if (rest >= 0x477ff000u) return static_cast<Storage>(sign | 0x7c00);
    if (rest < 0x38800000u) {
      return static_cast<Storage>(sign | static_cast<uint32_t>(__builtin_rintf(bits<float>(rest) * 0x1p24f)));
    }
    return static_cast<Storage>(sign | (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13);
  }
};
#endif

struct Bfloat16 {
  using Storage = uint16_t;
  static float widen(Storage value) { return bits<float>(static_cast<uint32_t>(value) << 16); }
  static Storage narrow(float value) {
    const uint32_t all = bits<uint32_t>(value);
    if ((all & 0x7fffffffu) > 0x7f800000u) return static_cast<Storage>(all >> 16 | 0x40);
    return static_cast<Storage>((all + 0x7fff + (all >> 16 & 1)) >> 16);
  }
};

template <class Format>
struct Narrow {
  typename Format::Storage storage;

  Narrow() = default;
  Narrow(float value) : storage(Format::narrow(value)) {}
  Narrow(double value) : Narrow(static_cast<float>(value)) {}
  Narrow(int value) : Narrow(static_cast<float>(value)) {}
  Narrow(unsigned value) : Narrow(static_cast<float>(value)) {}
  Narrow(long value) : Narrow(static_cast<float>(value)) {}
  Narrow(unsigned long value) : Narrow(static_cast<float>(value)) {}
  Narrow(long long value) : Narrow(static_cast<float>(value)) {}
  Narrow(unsigned long long value) : Narrow(static_cast<float>(value)) {}

  SIMT_INLINE operator float() const { return Format::widen(storage); }
  SIMT_INLINE float value() const { return Format::widen(storage); }
  SIMT_INLINE uint16_t raw() const { return bits<uint16_t>(storage); }
  static Narrow from_raw(uint16_t raw) {
    Narrow result;
    result.storage = bits<typename Format::Storage>(raw);
    return result;
  }

  friend Narrow operator+(Narrow a, Narrow b) { return a.value() + b.value(); }
  friend Narrow operator-(Narrow a, Narrow b) { return a.value() - b.value(); }
  friend Narrow operator*(Narrow a, Narrow b) { return a.value() * b.value(); }
  friend Narrow operator/(Narrow a, Narrow b) { return a.value() / b.value(); }
  friend Narrow operator-(Narrow a) { return from_raw(static_cast<uint16_t>(a.raw() ^ 0x8000)); }
  friend Narrow operator+(Narrow a) { return a; }
  friend bool operator==(Narrow a, Narrow b) { return a.value() == b.value(); }
  friend bool operator!=(Narrow a, Narrow b) { return a.value() != b.value(); }
  friend bool operator<(Narrow a, Narrow b) { return a.value() < b.value(); }
  friend bool operator>(Narrow a, Narrow b) { return a.value() > b.value(); }
  friend bool operator<=(Narrow a, Narrow b) { return a.value() <= b.value(); }
  friend bool operator>=(Narrow a, Narrow b) { return a.value() >= b.value(); }
  SIMT_INLINE Narrow& operator+=(Narrow b) { return *this = *this + b; }
  SIMT_INLINE Narrow& operator-=(Narrow b) { return *this = *this - b; }
  SIMT_INLINE Narrow& operator*=(Narrow b) { return *this = *this * b; }
  SIMT_INLINE Narrow& operator/=(Narrow b) { return *this = *this / b; }
  SIMT_INLINE Narrow& operator++() { return *this += Narrow(1.0f); }
  SIMT_INLINE Narrow& operator--() { return *this -= Narrow(1.0f); }

  friend Narrow __hadd(Narrow a, Narrow b) { return a + b; }
  friend Narrow __hsub(Narrow a, Narrow b) { return a - b; }
  friend Narrow __hmul(Narrow a, Narrow b) { return a * b; }
  friend Narrow __hdiv(Narrow a, Narrow b) { return a / b; }
  friend Narrow __hadd_rn(Narrow a, Narrow b) { return a + b; }
  friend Narrow __hsub_rn(Narrow a, Narrow b) { return a - b; }
  friend Narrow __hmul_rn(Narrow a, Narrow b) { return a * b; }
  friend Narrow __hadd_sat(Narrow a, Narrow b) { return __saturatef(a + b); }
  friend Narrow __hmul_sat(Narrow a, Narrow b) { return __saturatef(a * b); }
  // The product is exact; the sum is rounded to float first, which seldom changes the last bit.
  friend Narrow __hfma(Narrow a, Narrow b, Narrow c) { return __builtin_fmaf(a.value(), b.value(), c.value()); }
  friend Narrow __hneg(Narrow a) { return -a; }
  friend Narrow __habs(Narrow a) { return from_raw(a.raw() & 0x7fff); }
  friend Narrow __hmin(Narrow a, Narrow b) { return __builtin_fminf(a.value(), b.value()); }
  friend Narrow __hmax(Narrow a, Narrow b) { return __builtin_fmaxf(a.value(), b.value()); }
  friend bool __heq(Narrow a, Narrow b) { return a == b; }
  friend bool __hne(Narrow a, Narrow b) { return a != b; }
  friend bool __hlt(Narrow a, Narrow b) { return a < b; }
  friend bool __hle(Narrow a, Narrow b) { return a <= b; }
  friend bool __hgt(Narrow a, Narrow b) { return a > b; }
  friend bool __hge(Narrow a, Narrow b) { return a >= b; }
  friend bool __hisnan(Narrow a) { return a != a; }
  friend int __hisinf(Narrow a) { return __builtin_isinf(a.value()) ? (a.value() < 0 ? -1 : 1) : 0; }
  friend Narrow hsqrt(Narrow a) { return __builtin_sqrtf(a.value()); }
  friend Narrow hrsqrt(Narrow a) { return 1.0f / __builtin_sqrtf(a.value()); }
  friend Narrow hrcp(Narrow a) { return 1.0f / a.value(); }
  friend Narrow hexp(Narrow a) { return __builtin_expf(a.value()); }
  friend Narrow hexp2(Narrow a) { return __builtin_exp2f(a.value()); }
  friend Narrow hlog(Narrow a) { return __builtin_logf(a.value()); }
  friend Narrow hlog2(Narrow a) { return __builtin_log2f(a.value()); }
  friend Narrow hsin(Narrow a) { return __builtin_sinf(a.value()); }
  friend Narrow hcos(Narrow a) { return __builtin_cosf(a.value()); }
  friend Narrow htanh(Narrow a) { return __builtin_tanhf(a.value()); }
  friend Narrow hfloor(Narrow a) { return __builtin_floorf(a.value()); }
  friend Narrow hceil(Narrow a) { return __builtin_ceilf(a.value()); }
  friend Narrow htrunc(Narrow a) { return __builtin_truncf(a.value()); }
  friend Narrow hrint(Narrow a) { return __builtin_rintf(a.value()); }

  friend SIMT_INLINE Narrow atomicAdd(Narrow* address, Narrow value) {
    return atomic_update(address, [value](Narrow old) { return old + value; });
  }
};

// Two of them in one 32-bit word.
template <class Format>
struct __attribute__((aligned(4))) Pair {
  using Element = Narrow<Format>;
  Element x, y;

  Pair() = default;
  Pair(Element low, Element high) : x(low), y(high) {}

  friend Pair operator+(Pair a, Pair b) { return {a.x + b.x, a.y + b.y}; }
  friend Pair operator-(Pair a, Pair b) { return {a.x - b.x, a.y - b.y}; }
  friend Pair operator*(Pair a, Pair b) { return {a.x * b.x, a.y * b.y}; }
  friend Pair operator/(Pair a, Pair b) { return {a.x / b.x, a.y / b.y}; }
  friend Pair operator-(Pair a) { return {-a.x, -a.y}; }
  friend bool operator==(Pair a, Pair b) { return a.x == b.x && a.y == b.y; }
  friend bool operator!=(Pair a, Pair b) { return a.x != b.x && a.y != b.y; }
  SIMT_INLINE Pair& operator+=(Pair b) { return *this = *this + b; }
  SIMT_INLINE Pair& operator-=(Pair b) { return *this = *this - b; }
  SIMT_INLINE Pair& operator*=(Pair b) { return *this = *this * b; }

  friend Pair __hadd2(Pair a, Pair b) { return a + b; }
  friend Pair __hsub2(Pair a, Pair b) { return a - b; }
  friend Pair __hmul2(Pair a, Pair b) { return a * b; }
  friend Pair __h2div(Pair a, Pair b) { return a / b; }
  friend Pair __hadd2_rn(Pair a, Pair b) { return a + b; }
  friend Pair __hmul2_rn(Pair a, Pair b) { return a * b; }
  friend Pair __hfma2(Pair a, Pair b, Pair c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
  friend Pair __hneg2(Pair a) { return -a; }
  friend Pair __habs2(Pair a) { return {__habs(a.x), __habs(a.y)}; }
  friend Pair __hmin2(Pair a, Pair b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }
  friend Pair __hmax2(Pair a, Pair b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
  friend Pair h2sqrt(Pair a) { return {hsqrt(a.x), hsqrt(a.y)}; }
  friend Pair h2rsqrt(Pair a) { return {hrsqrt(a.x), hrsqrt(a.y)}; }
  friend Pair h2exp(Pair a) { return {hexp(a.x), hexp(a.y)}; }
  friend Pair h2log(Pair a) { return {hlog(a.x), hlog(a.y)}; }

  friend SIMT_INLINE Pair atomicAdd(Pair* address, Pair value) {
    return atomic_update(address, [value](Pair old) { return old + value; });
  }
};

}  // namespace simt
