// Matrix products of a warpgroup, wgmma, of compute capability 9.0: 64×N of a product in the registers of four
// warps, factors in shared memory as TMA's 128-byte swizzle leaves them. Needs sm_90a and runs on a GPU only.
// Sections named below are those of NVIDIA's "PTX ISA" document, under "Asynchronous Warpgroup Level Matrix
// Instructions".
//
// How a product is asked for, by all 128 threads of a warpgroup (warps 4w to 4w + 3 of the block):
//
//   wgmma::fence();                                               // registers and shared memory are ready
//   for (…) wgmma::multiply<wgmma::Bfloat16>(sums, a, b, add);    // any number; they run one after the other
//   wgmma::commit();                                              // one group of them
//   wgmma::wait<0>();                                             // sums may be read, the factors overwritten
//
// Sums must not be touched between the first multiply and the wait that ends it. The compiler sees to that by
// waiting after every single product where it cannot prove it, and says so (C7510 and its neighbours): such a
// build is many times slower. Sums in an array with indices known at compile time, in one loop, are safe.
#pragma once

#include "hopper.cuh"

namespace wgmma {

// "wgmma.fence": orders accesses of registers and of shared memory before products that follow. Shared memory
// that threads wrote themselves, unlike TMA's, needs hopper::fence_async_proxy() before it too.
__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// "wgmma.commit_group"
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// "wgmma.wait_group": waits until at most the last `Groups` groups of the warpgroup are under way.
template <int Groups>
__device__ __forceinline__ void wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Groups) : "memory");
}

// The axis along which a factor's elements are neighbours in memory: K, or the other one, M of A or N of B. "MN"
// is for elements of 16 bits only.
enum class Major { K, MN };

// "Matrix Descriptor Format" and "Strides": where a factor begins in shared memory, in units of 16 bytes, and how
// far apart the parts of it are that the instruction reads. Both forms are for the 128-byte swizzle, in which 8
// rows of 128 bytes make a part of 1024 bytes that begins at a multiple of 1024.
//
// With neighbours along K a row of M (or N) has 128 bytes, and 8 rows after 8 rows follow each other; a step of 16
// elements of 16 bits along K, of 8 of 32 or of 32 of 8 is 32 bytes of the row: +2 on the descriptor.
__device__ __forceinline__ unsigned long long descriptor_k(unsigned address) {
  return (static_cast<unsigned long long>(address & 0x3ffff) >> 4) | 1ull << 16 | 1024ull >> 4 << 32 | 1ull << 62;
}

// With neighbours along M (or N) a row of K has 64 elements of them, 128 bytes, and a box has `depth` such rows; the
// next 64 elements are in the next box. A step of 16 along K is 16 rows: +128 on the descriptor.
__device__ __forceinline__ unsigned long long descriptor_mn(unsigned address, int depth) {
  return (static_cast<unsigned long long>(address & 0x3ffff) >> 4) |
         (static_cast<unsigned long long>(depth) * 128 >> 4) << 16 | 1024ull >> 4 << 32 | 1ull << 62;
}

constexpr int STEP_K = 2, STEP_MN = 128;  // from one product along K to the next, on a descriptor

// "Asynchronous Multiply-and-Accumulate Instruction: wgmma.mma_async": types of factors and sums, as the
// instruction spells them, how deep one product is, and what the sums are in C++.
struct Bfloat16 {
  using Sum = float;
  static constexpr int DEPTH = 16;
  static constexpr char TYPES[] = "k16.f32.bf16.bf16";
};
struct Float16 {
  using Sum = float;
  static constexpr int DEPTH = 16;
  static constexpr char TYPES[] = "k16.f32.f16.f16";
};
struct Tf32 {
  using Sum = float;
  static constexpr int DEPTH = 8;
  static constexpr char TYPES[] = "k8.f32.tf32.tf32";
};
struct E4m3 {
  using Sum = float;
  static constexpr int DEPTH = 32;
  static constexpr char TYPES[] = "k32.f32.e4m3.e4m3";
};
struct Int8 {
  using Sum = int;
  static constexpr int DEPTH = 32;
  static constexpr char TYPES[] = "k32.s32.s8.s8";
};

// The kind of product for an element type. cuda_bf16.h and its like are included before this file where needed.
template <typename T>
struct OfElement;
template <>
struct OfElement<float> {
  using Kind = Tf32;
};
template <>
struct OfElement<signed char> {
  using Kind = Int8;
};
#ifdef __CUDA_BF16_TYPES_EXIST__
template <>
struct OfElement<__nv_bfloat16> {
  using Kind = Bfloat16;
};
#endif
#ifdef __CUDA_FP16_TYPES_EXIST__
template <>
struct OfElement<__half> {
  using Kind = Float16;
};
#endif
#ifdef __CUDA_FP8_TYPES_EXIST__
template <>
struct OfElement<__nv_fp8_e4m3> {
  using Kind = E4m3;
};
#endif

// The instruction's last operands: signs of the factors (of floats only), then the majors that can be chosen.
template <typename Kind, Major A, Major B>
struct Tail {
  static_assert(Kind::DEPTH == 16 || (A == Major::K && B == Major::K), "only 16-bit factors can be MN-major");
  static constexpr char SHARED[] = ", 1, 1";
  static constexpr char REGISTERS[] = ", 1, 1";
};
template <Major A, Major B>
struct Tail<Int8, A, B> {
  static_assert(A == Major::K && B == Major::K, "only 16-bit factors can be MN-major");
  static constexpr char SHARED[] = "";
  static constexpr char REGISTERS[] = "";
};
template <Major A, Major B>
struct Tail16 {
  static constexpr char SHARED[] = {',', ' ', '1', ',', ' ', '1', ',', ' ', A == Major::MN ? '1' : '0',
                                    ',', ' ', B == Major::MN ? '1' : '0', '\0'};
  static constexpr char REGISTERS[] = {',', ' ', '1', ',', ' ', '1', ',', ' ', B == Major::MN ? '1' : '0', '\0'};
};
template <Major A, Major B>
struct Tail<Bfloat16, A, B> : Tail16<A, B> {};
template <Major A, Major B>
struct Tail<Float16, A, B> : Tail16<A, B> {};

// One product, as an overload for each number of sums. Inline assembly counts its operands, so each of them is
// spelled out: a row of the table below is N, then the numbers of the operands that follow the N / 2 sums.
// WGMMA_TEXT_… are the sums in the instruction's text, WGMMA_SUMS_… as operands of constraint `c`.
#define WGMMA_TEXT_4 "%0, %1, %2, %3"
#define WGMMA_TEXT_8 WGMMA_TEXT_4 ", %4, %5, %6, %7"
#define WGMMA_TEXT_12 WGMMA_TEXT_8 ", %8, %9, %10, %11"
#define WGMMA_TEXT_16 WGMMA_TEXT_12 ", %12, %13, %14, %15"
#define WGMMA_TEXT_20 WGMMA_TEXT_16 ", %16, %17, %18, %19"
#define WGMMA_TEXT_24 WGMMA_TEXT_20 ", %20, %21, %22, %23"
#define WGMMA_TEXT_28 WGMMA_TEXT_24 ", %24, %25, %26, %27"
#define WGMMA_TEXT_32 WGMMA_TEXT_28 ", %28, %29, %30, %31"
#define WGMMA_TEXT_36 WGMMA_TEXT_32 ", %32, %33, %34, %35"
#define WGMMA_TEXT_40 WGMMA_TEXT_36 ", %36, %37, %38, %39"
#define WGMMA_TEXT_44 WGMMA_TEXT_40 ", %40, %41, %42, %43"
#define WGMMA_TEXT_48 WGMMA_TEXT_44 ", %44, %45, %46, %47"
#define WGMMA_TEXT_52 WGMMA_TEXT_48 ", %48, %49, %50, %51"
#define WGMMA_TEXT_56 WGMMA_TEXT_52 ", %52, %53, %54, %55"
#define WGMMA_TEXT_60 WGMMA_TEXT_56 ", %56, %57, %58, %59"
#define WGMMA_TEXT_64 WGMMA_TEXT_60 ", %60, %61, %62, %63"
#define WGMMA_TEXT_68 WGMMA_TEXT_64 ", %64, %65, %66, %67"
#define WGMMA_TEXT_72 WGMMA_TEXT_68 ", %68, %69, %70, %71"
#define WGMMA_TEXT_76 WGMMA_TEXT_72 ", %72, %73, %74, %75"
#define WGMMA_TEXT_80 WGMMA_TEXT_76 ", %76, %77, %78, %79"
#define WGMMA_TEXT_84 WGMMA_TEXT_80 ", %80, %81, %82, %83"
#define WGMMA_TEXT_88 WGMMA_TEXT_84 ", %84, %85, %86, %87"
#define WGMMA_TEXT_92 WGMMA_TEXT_88 ", %88, %89, %90, %91"
#define WGMMA_TEXT_96 WGMMA_TEXT_92 ", %92, %93, %94, %95"
#define WGMMA_TEXT_100 WGMMA_TEXT_96 ", %96, %97, %98, %99"
#define WGMMA_TEXT_104 WGMMA_TEXT_100 ", %100, %101, %102, %103"
#define WGMMA_TEXT_108 WGMMA_TEXT_104 ", %104, %105, %106, %107"
#define WGMMA_TEXT_112 WGMMA_TEXT_108 ", %108, %109, %110, %111"
#define WGMMA_TEXT_116 WGMMA_TEXT_112 ", %112, %113, %114, %115"
#define WGMMA_TEXT_120 WGMMA_TEXT_116 ", %116, %117, %118, %119"
#define WGMMA_TEXT_124 WGMMA_TEXT_120 ", %120, %121, %122, %123"
#define WGMMA_TEXT_128 WGMMA_TEXT_124 ", %124, %125, %126, %127"

#define WGMMA_SUMS_4(c) c(d[0]), c(d[1]), c(d[2]), c(d[3])
#define WGMMA_SUMS_8(c) WGMMA_SUMS_4(c), c(d[4]), c(d[5]), c(d[6]), c(d[7])
#define WGMMA_SUMS_12(c) WGMMA_SUMS_8(c), c(d[8]), c(d[9]), c(d[10]), c(d[11])
#define WGMMA_SUMS_16(c) WGMMA_SUMS_12(c), c(d[12]), c(d[13]), c(d[14]), c(d[15])
#define WGMMA_SUMS_20(c) WGMMA_SUMS_16(c), c(d[16]), c(d[17]), c(d[18]), c(d[19])
#define WGMMA_SUMS_24(c) WGMMA_SUMS_20(c), c(d[20]), c(d[21]), c(d[22]), c(d[23])
#define WGMMA_SUMS_28(c) WGMMA_SUMS_24(c), c(d[24]), c(d[25]), c(d[26]), c(d[27])
#define WGMMA_SUMS_32(c) WGMMA_SUMS_28(c), c(d[28]), c(d[29]), c(d[30]), c(d[31])
#define WGMMA_SUMS_36(c) WGMMA_SUMS_32(c), c(d[32]), c(d[33]), c(d[34]), c(d[35])
#define WGMMA_SUMS_40(c) WGMMA_SUMS_36(c), c(d[36]), c(d[37]), c(d[38]), c(d[39])
#define WGMMA_SUMS_44(c) WGMMA_SUMS_40(c), c(d[40]), c(d[41]), c(d[42]), c(d[43])
#define WGMMA_SUMS_48(c) WGMMA_SUMS_44(c), c(d[44]), c(d[45]), c(d[46]), c(d[47])
#define WGMMA_SUMS_52(c) WGMMA_SUMS_48(c), c(d[48]), c(d[49]), c(d[50]), c(d[51])
#define WGMMA_SUMS_56(c) WGMMA_SUMS_52(c), c(d[52]), c(d[53]), c(d[54]), c(d[55])
#define WGMMA_SUMS_60(c) WGMMA_SUMS_56(c), c(d[56]), c(d[57]), c(d[58]), c(d[59])
#define WGMMA_SUMS_64(c) WGMMA_SUMS_60(c), c(d[60]), c(d[61]), c(d[62]), c(d[63])
#define WGMMA_SUMS_68(c) WGMMA_SUMS_64(c), c(d[64]), c(d[65]), c(d[66]), c(d[67])
#define WGMMA_SUMS_72(c) WGMMA_SUMS_68(c), c(d[68]), c(d[69]), c(d[70]), c(d[71])
#define WGMMA_SUMS_76(c) WGMMA_SUMS_72(c), c(d[72]), c(d[73]), c(d[74]), c(d[75])
#define WGMMA_SUMS_80(c) WGMMA_SUMS_76(c), c(d[76]), c(d[77]), c(d[78]), c(d[79])
#define WGMMA_SUMS_84(c) WGMMA_SUMS_80(c), c(d[80]), c(d[81]), c(d[82]), c(d[83])
#define WGMMA_SUMS_88(c) WGMMA_SUMS_84(c), c(d[84]), c(d[85]), c(d[86]), c(d[87])
#define WGMMA_SUMS_92(c) WGMMA_SUMS_88(c), c(d[88]), c(d[89]), c(d[90]), c(d[91])
#define WGMMA_SUMS_96(c) WGMMA_SUMS_92(c), c(d[92]), c(d[93]), c(d[94]), c(d[95])
#define WGMMA_SUMS_100(c) WGMMA_SUMS_96(c), c(d[96]), c(d[97]), c(d[98]), c(d[99])
#define WGMMA_SUMS_104(c) WGMMA_SUMS_100(c), c(d[100]), c(d[101]), c(d[102]), c(d[103])
#define WGMMA_SUMS_108(c) WGMMA_SUMS_104(c), c(d[104]), c(d[105]), c(d[106]), c(d[107])
#define WGMMA_SUMS_112(c) WGMMA_SUMS_108(c), c(d[108]), c(d[109]), c(d[110]), c(d[111])
#define WGMMA_SUMS_116(c) WGMMA_SUMS_112(c), c(d[112]), c(d[113]), c(d[114]), c(d[115])
#define WGMMA_SUMS_120(c) WGMMA_SUMS_116(c), c(d[116]), c(d[117]), c(d[118]), c(d[119])
#define WGMMA_SUMS_124(c) WGMMA_SUMS_120(c), c(d[120]), c(d[121]), c(d[122]), c(d[123])
#define WGMMA_SUMS_128(c) WGMMA_SUMS_124(c), c(d[124]), c(d[125]), c(d[126]), c(d[127])

// r0 … r7 number the operands after the sums. `sum` and `c` are the sums' type and constraint.
#define WGMMA_PRODUCT(n, r, sum, c, r0, r1, r2, r3, r4, r5, r6, r7)                                                \
  template <typename Kind, typename Last>                                                                         \
  __device__ __forceinline__ void product(sum(&d)[r], unsigned long long a, unsigned long long b, int add) {       \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #r2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "%" #r3      \
                 " {" WGMMA_TEXT_##r "}, %" #r0 ", %" #r1 ", p%" #r4 ";\n}"                                         \
                 : WGMMA_SUMS_##r(c)                                                                              \
                 : "l"(a), "l"(b), "r"(add), "C"(Kind::TYPES), "C"(Last::SHARED));                                 \
  }                                                                                                               \
  template <typename Kind, typename Last>                                                                         \
  __device__ __forceinline__ void product(sum(&d)[r], const unsigned(&a)[4], unsigned long long b, int add) {      \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #r5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "%" #r6      \
                 " {" WGMMA_TEXT_##r "}, {%" #r0 ", %" #r1 ", %" #r2 ", %" #r3 "}, %" #r4 ", p%" #r7 ";\n}"         \
                 : WGMMA_SUMS_##r(c)                                                                              \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "C"(Kind::TYPES),                 \
                   "C"(Last::REGISTERS));                                                                         \
  }
#define WGMMA_FLOAT(n, r, ...) WGMMA_PRODUCT(n, r, float, "+f", __VA_ARGS__)
#define WGMMA_BOTH(n, r, ...) WGMMA_FLOAT(n, r, __VA_ARGS__) WGMMA_PRODUCT(n, r, int, "+r", __VA_ARGS__)

// N of int8 is 8, 24 or a multiple of 16.
WGMMA_BOTH(8, 4, 4, 5, 6, 7, 8, 9, 10, 11)
WGMMA_BOTH(16, 8, 8, 9, 10, 11, 12, 13, 14, 15)
WGMMA_BOTH(24, 12, 12, 13, 14, 15, 16, 17, 18, 19)
WGMMA_BOTH(32, 16, 16, 17, 18, 19, 20, 21, 22, 23)
WGMMA_FLOAT(40, 20, 20, 21, 22, 23, 24, 25, 26, 27)
WGMMA_BOTH(48, 24, 24, 25, 26, 27, 28, 29, 30, 31)
WGMMA_FLOAT(56, 28, 28, 29, 30, 31, 32, 33, 34, 35)
WGMMA_BOTH(64, 32, 32, 33, 34, 35, 36, 37, 38, 39)
WGMMA_FLOAT(72, 36, 36, 37, 38, 39, 40, 41, 42, 43)
WGMMA_BOTH(80, 40, 40, 41, 42, 43, 44, 45, 46, 47)
WGMMA_FLOAT(88, 44, 44, 45, 46, 47, 48, 49, 50, 51)
WGMMA_BOTH(96, 48, 48, 49, 50, 51, 52, 53, 54, 55)
WGMMA_FLOAT(104, 52, 52, 53, 54, 55, 56, 57, 58, 59)
WGMMA_BOTH(112, 56, 56, 57, 58, 59, 60, 61, 62, 63)
WGMMA_FLOAT(120, 60, 60, 61, 62, 63, 64, 65, 66, 67)
WGMMA_BOTH(128, 64, 64, 65, 66, 67, 68, 69, 70, 71)
WGMMA_FLOAT(136, 68, 68, 69, 70, 71, 72, 73, 74, 75)
WGMMA_BOTH(144, 72, 72, 73, 74, 75, 76, 77, 78, 79)
WGMMA_FLOAT(152, 76, 76, 77, 78, 79, 80, 81, 82, 83)
WGMMA_BOTH(160, 80, 80, 81, 82, 83, 84, 85, 86, 87)
WGMMA_FLOAT(168, 84, 84, 85, 86, 87, 88, 89, 90, 91)
WGMMA_BOTH(176, 88, 88, 89, 90, 91, 92, 93, 94, 95)
WGMMA_FLOAT(184, 92, 92, 93, 94, 95, 96, 97, 98, 99)
WGMMA_BOTH(192, 96, 96, 97, 98, 99, 100, 101, 102, 103)
WGMMA_FLOAT(200, 100, 100, 101, 102, 103, 104, 105, 106, 107)
WGMMA_BOTH(208, 104, 104, 105, 106, 107, 108, 109, 110, 111)
WGMMA_FLOAT(216, 108, 108, 109, 110, 111, 112, 113, 114, 115)
WGMMA_BOTH(224, 112, 112, 113, 114, 115, 116, 117, 118, 119)
WGMMA_FLOAT(232, 116, 116, 117, 118, 119, 120, 121, 122, 123)
WGMMA_BOTH(240, 120, 120, 121, 122, 123, 124, 125, 126, 127)
WGMMA_FLOAT(248, 124, 124, 125, 126, 127, 128, 129, 130, 131)
WGMMA_BOTH(256, 128, 128, 129, 130, 131, 132, 133, 134, 135)

#undef WGMMA_BOTH
#undef WGMMA_FLOAT
#undef WGMMA_PRODUCT

// Adds A·B to sums, or with `add` 0 overwrites them with it: 64×DEPTH of A times DEPTH×N of B, N twice the number
// of a thread's sums, 8 to 256 in steps of 8. Both factors in shared memory, by their descriptors. Which thread has
// which sums: see row_of and column_of.
template <typename Kind, Major A = Major::K, Major B = Major::K, int Sums>
__device__ __forceinline__ void multiply(typename Kind::Sum (&sums)[Sums], unsigned long long a,
                                         unsigned long long b, int add) {
  product<Kind, Tail<Kind, A, B>>(sums, a, b, add);
}

// The same with A in registers: four words a thread, whose places are "Register Fragments" of the same section.
template <typename Kind, Major B = Major::K, int Sums>
__device__ __forceinline__ void multiply(typename Kind::Sum (&sums)[Sums], const unsigned (&a)[4],
                                         unsigned long long b, int add) {
  product<Kind, Tail<Kind, Major::K, B>>(sums, a, b, add);
}

// "Register Fragments": sum i of thread t of the warpgroup lies in this row and column of the 64×N; sums come in
// pairs of neighbouring columns.
__device__ __forceinline__ int row_of(int i, int t) { return t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8; }
__device__ __forceinline__ int column_of(int i, int t) { return i / 4 * 8 + t % 4 * 2 + i % 2; }

}  // namespace wgmma
