// Instructions that CUDA C++ has no name for: matrix fragments from shared memory, products of them on
// tensor cores, asynchronous copies. Sections named below are those of NVIDIA's "PTX ISA" document.
//
// Each function is the inline PTX of one instruction, and under __SWEEPER_EMULATOR__ C++ that does the same
// on a CPU. What a CPU cannot stand in for is not here: wgmma and TMA, which work on whole warpgroups and on
// descriptors, and thread block clusters.
//
// Registers of a fragment are 32-bit words: four int8 in each, two __half or __nv_bfloat16, or one tf32; of
// float64 they are doubles. All 32 lanes of a warp call ldmatrix_… and mma_… together.
#pragma once

#ifdef __SWEEPER_EMULATOR__
#include <cuda_fp16.h>
#endif

namespace ptx {

#ifdef __SWEEPER_EMULATOR__

namespace emulated {

struct alignas(16) MatrixRow {
  unsigned words[4];
};

struct Fragments {
  MatrixRow row;
  unsigned result[4];
};

// Matrix i has its rows from lanes 8i … 8i + 7. Lane l receives elements 2(l % 4) and the next of row l / 4;
// of the transposed matrix these are rows 2(l % 4) and the next of column l / 4.
template <bool Transposed> __unchecked__ void distribute(void* const* payloads, unsigned) {
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned matrix = 0; matrix < 4; ++matrix) {
      const unsigned first = matrix * 8;
      unsigned& result = static_cast<Fragments*>(payloads[lane])->result[matrix];
      if (!Transposed) {
        result = static_cast<const Fragments*>(payloads[first + lane / 4])->row.words[lane % 4];
        continue;
      }
      const unsigned word = lane / 8, shift = lane / 4 % 2 * 16;
      const unsigned low = static_cast<const Fragments*>(payloads[first + lane % 4 * 2])->row.words[word];
      const unsigned high =
          static_cast<const Fragments*>(payloads[first + lane % 4 * 2 + 1])->row.words[word];
      result = (low >> shift & 0xffffu) | (high >> shift & 0xffffu) << 16;
    }
  }
}

template <int Matrices, bool Transposed>
__emulated__ void load_matrices(unsigned (&registers)[Matrices], const void* row) {
  Fragments mine{};
  if (simt_thread->lane < 8 * Matrices) {
    simt_need_alignment(row, sizeof(MatrixRow));
    mine.row = *static_cast<const MatrixRow*>(row);
  }
  SIMT_HERE();
  simt_sync_lanes(0xffffffffu, &mine, &distribute<Transposed>);
  for (int i = 0; i < Matrices; ++i) registers[i] = mine.result[i];
}

// How elements lie in the registers of a product's operands, and what they are summed in.
struct HalfFactor {
  using Register = unsigned;
  using Sum = float;
  static float value(const unsigned* words, unsigned i) {
    const unsigned short raw = static_cast<unsigned short>(words[i / 2] >> (i % 2 * 16));
    return simt::Binary16::widen(simt::bits<simt::Binary16::Storage>(raw));
  }
};

struct Bfloat16Factor {
  using Register = unsigned;
  using Sum = float;
  static float value(const unsigned* words, unsigned i) {
    return simt::bits<float>(words[i / 2] >> (i % 2 * 16) << 16);
  }
};

// The unit reads the upper 19 bits and ignores the rest.
struct Tf32Factor {
  using Register = unsigned;
  using Sum = float;
  static float value(const unsigned* words, unsigned i) { return simt::bits<float>(words[i] & 0xffffe000u); }
};

struct Int8Factor {
  using Register = unsigned;
  using Sum = int;
  static int value(const unsigned* words, unsigned i) {
    return static_cast<signed char>(words[i / 4] >> (i % 4 * 8) & 0xffu);
  }
};

struct DoubleFactor {
  using Register = double;
  using Sum = double;
  static double value(const double* words, unsigned i) { return words[i]; }
};

template <class Factor> struct Operands {
  const typename Factor::Register *a, *b;
  const typename Factor::Sum* c;
  typename Factor::Sum* d;
};

// With g = lane / 4 and t = lane % 4, `Run` neighbouring elements of k in a register (4, 2 or 1) and H = Rows / 8:
// element i of a lies in row g + 8·(i / Run % H), column Run·t + i % Run + 4·Run·(i / Run / H); element i of b
// in row Run·t + i % Run + 4·Run·(i / Run), column g; element i of c and d in row g + 8·(i / 2), column
// 2t + i % 2.
template <class Factor, unsigned Rows, unsigned Depth, unsigned Run>
__unchecked__ void multiply(void* const* payloads, unsigned) {
  constexpr unsigned Halves = Rows / 8;
  typename Factor::Sum a[Rows][Depth], b[Depth][8], sums[Rows][8];
  for (unsigned lane = 0; lane < 32; ++lane) {
    const Operands<Factor>& part = *static_cast<const Operands<Factor>*>(payloads[lane]);
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned i = 0; i < Rows * Depth / 32; ++i)
      a[g + 8 * (i / Run % Halves)][Run * t + i % Run + 4 * Run * (i / Run / Halves)] = Factor::value(part.a, i);
    for (unsigned i = 0; i < Depth / 4; ++i)
      b[Run * t + i % Run + 4 * Run * (i / Run)][g] = Factor::value(part.b, i);
    for (unsigned i = 0; i < Rows / 4; ++i) sums[g + 8 * (i / 2)][2 * t + i % 2] = part.c[i];
  }
  for (unsigned row = 0; row < Rows; ++row) {
    for (unsigned k = 0; k < Depth; ++k) {
      for (unsigned column = 0; column < 8; ++column) sums[row][column] += a[row][k] * b[k][column];
    }
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    typename Factor::Sum* d = static_cast<Operands<Factor>*>(payloads[lane])->d;
    for (unsigned i = 0; i < Rows / 4; ++i) d[i] = sums[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
  }
}

template <class Factor, unsigned Rows, unsigned Depth, unsigned Run>
__emulated__ void multiply_add(typename Factor::Sum* d, const typename Factor::Register* a,
                               const typename Factor::Register* b, const typename Factor::Sum* c) {
  typename Factor::Sum result[Rows / 4];
  Operands<Factor> mine{a, b, c, result};
  SIMT_HERE();
  simt_sync_lanes(0xffffffffu, &mine, &multiply<Factor, Rows, Depth, Run>);
  for (unsigned i = 0; i < Rows / 4; ++i) d[i] = result[i];
}

}  // namespace emulated

#define PTX_FUNCTION __emulated__

#else

#define PTX_FUNCTION __device__ __forceinline__

PTX_FUNCTION unsigned shared_address(const void* address) {
  return static_cast<unsigned>(__cvta_generic_to_shared(address));
}

#endif

// --- "Warp-level matrix load instruction: ldmatrix"
// --------------------------------------------------------- Loads one, two or four 8×8 matrices of 16-bit
// elements from shared memory. Lanes 8i … 8i + 7 pass the addresses of the rows of matrix i, each of 16 bytes
// and a multiple of 16. Lane l receives elements 2(l % 4) and the next of row l / 4 of matrix i in
// registers[i]; with _trans, of its transpose.

PTX_FUNCTION void ldmatrix_x1(unsigned (&registers)[1], const void* row) {
#ifdef __SWEEPER_EMULATOR__
  emulated::load_matrices<1, false>(registers, row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
               : "=r"(registers[0])
               : "r"(shared_address(row))
               : "memory");
#endif
}

PTX_FUNCTION void ldmatrix_x2(unsigned (&registers)[2], const void* row) {
#ifdef __SWEEPER_EMULATOR__
  emulated::load_matrices<2, false>(registers, row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(registers[0]), "=r"(registers[1])
               : "r"(shared_address(row))
               : "memory");
#endif
}

PTX_FUNCTION void ldmatrix_x4(unsigned (&registers)[4], const void* row) {
#ifdef __SWEEPER_EMULATOR__
  emulated::load_matrices<4, false>(registers, row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared_address(row))
               : "memory");
#endif
}

PTX_FUNCTION void ldmatrix_x1_trans(unsigned (&registers)[1], const void* row) {
#ifdef __SWEEPER_EMULATOR__
  emulated::load_matrices<1, true>(registers, row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
               : "=r"(registers[0])
               : "r"(shared_address(row))
               : "memory");
#endif
}

PTX_FUNCTION void ldmatrix_x2_trans(unsigned (&registers)[2], const void* row) {
#ifdef __SWEEPER_EMULATOR__
  emulated::load_matrices<2, true>(registers, row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(registers[0]), "=r"(registers[1])
               : "r"(shared_address(row))
               : "memory");
#endif
}

PTX_FUNCTION void ldmatrix_x4_trans(unsigned (&registers)[4], const void* row) {
#ifdef __SWEEPER_EMULATOR__
  emulated::load_matrices<4, true>(registers, row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared_address(row))
               : "memory");
#endif
}

// --- "Multiply-and-accumulate instruction: mma"
// ------------------------------------------------------------- d = a·b + c, with a 16×16 (tf32: 16×8), b
// 16×8 (8×8), c and d 16×8 of float. d and c may be the same. Which lane holds which element: "Matrix
// Fragments for mma.m16n8k16 with floating point type" and "… for mma.m16n8k8". For a in row-major shared
// memory, ldmatrix_x4 with row addresses of its four quarters (upper left, lower left, upper right, lower
// right) gives the registers of a.

PTX_FUNCTION void mma_m16n8k16_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                   const float (&c)[4]) {
#ifdef __SWEEPER_EMULATOR__
  emulated::multiply_add<emulated::HalfFactor, 16, 16, 2>(d, a, b, c);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),
        "f"(c[3]));
#endif
}

PTX_FUNCTION void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                    const float (&c)[4]) {
#ifdef __SWEEPER_EMULATOR__
  emulated::multiply_add<emulated::Bfloat16Factor, 16, 16, 2>(d, a, b, c);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),
        "f"(c[3]));
#endif
}

PTX_FUNCTION void mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                   const float (&c)[4]) {
#ifdef __SWEEPER_EMULATOR__
  emulated::multiply_add<emulated::Tf32Factor, 16, 8, 1>(d, a, b, c);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),
        "f"(c[3]));
#endif
}

// Integers: a 16×32, b 32×8, sums of int that wrap; "Matrix Fragments for mma.m16n8k32".
PTX_FUNCTION void mma_m16n8k32_s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], const int (&c)[4]) {
#ifdef __SWEEPER_EMULATOR__
  emulated::multiply_add<emulated::Int8Factor, 16, 32, 4>(d, a, b, c);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]),
        "r"(c[3]));
#endif
}

// Double precision. "Matrix Fragments for mma.m8n8k4 with .f64 floating point type": a 8×4, b 4×8, c and d 8×8;
// this one runs on every GPU since compute capability 8.0, those below since 9.0.
PTX_FUNCTION void mma_m8n8k4_f64(double (&d)[2], const double (&a)[1], const double (&b)[1], const double (&c)[2]) {
#ifdef __SWEEPER_EMULATOR__
  emulated::multiply_add<emulated::DoubleFactor, 8, 4, 1>(d, a, b, c);
#else
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%4, %5};"
               : "=d"(d[0]), "=d"(d[1])
               : "d"(a[0]), "d"(b[0]), "d"(c[0]), "d"(c[1]));
#endif
}

// "Matrix Fragments for mma.m16n8k4" (.f64): a 16×4, b 4×8.
PTX_FUNCTION void mma_m16n8k4_f64(double (&d)[4], const double (&a)[2], const double (&b)[1], const double (&c)[4]) {
#ifdef __SWEEPER_EMULATOR__
  emulated::multiply_add<emulated::DoubleFactor, 16, 4, 1>(d, a, b, c);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
      : "=d"(d[0]), "=d"(d[1]), "=d"(d[2]), "=d"(d[3])
      : "d"(a[0]), "d"(a[1]), "d"(b[0]), "d"(c[0]), "d"(c[1]), "d"(c[2]), "d"(c[3]));
#endif
}

// "Matrix Fragments for mma.m16n8k8" (.f64): a 16×8, b 8×8.
PTX_FUNCTION void mma_m16n8k8_f64(double (&d)[4], const double (&a)[4], const double (&b)[2], const double (&c)[4]) {
#ifdef __SWEEPER_EMULATOR__
  emulated::multiply_add<emulated::DoubleFactor, 16, 8, 1>(d, a, b, c);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=d"(d[0]), "=d"(d[1]), "=d"(d[2]), "=d"(d[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]), "d"(c[0]), "d"(c[1]), "d"(c[2]),
        "d"(c[3]));
#endif
}

// "Matrix Fragments for mma.m16n8k16 with floating point type" (.f64): a 16×16, b 16×8.
PTX_FUNCTION void mma_m16n8k16_f64(double (&d)[4], const double (&a)[8], const double (&b)[4],
                                   const double (&c)[4]) {
#ifdef __SWEEPER_EMULATOR__
  emulated::multiply_add<emulated::DoubleFactor, 16, 16, 1>(d, a, b, c);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%16, %17, %18, %19};"
      : "=d"(d[0]), "=d"(d[1]), "=d"(d[2]), "=d"(d[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]),
        "d"(b[1]), "d"(b[2]), "d"(b[3]), "d"(c[0]), "d"(c[1]), "d"(c[2]), "d"(c[3]));
#endif
}

// "Data movement and conversion instructions: cvt": to tf32, rounded to nearest, ties away from zero.
PTX_FUNCTION unsigned to_tf32(float value) {
#ifdef __SWEEPER_EMULATOR__
  const unsigned all = simt::bits<unsigned>(value);
  return value == value ? (all + 0x1000u) & 0xffffe000u : 0x7fffffffu;
#else
  unsigned result;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(value));
  return result;
#endif
}

// --- "Data movement and conversion instructions: cp.async"
// -------------------------------------------------- Starts a copy of `Bytes` (4, 8 or 16) from global to
// shared memory, both at a multiple of that; what is there may be used once the copy was waited for and, by
// other threads, after a barrier. Only the first `valid` bytes are read, the rest becomes zero. Copies of 16
// bytes go past the first-level cache.
template <int Bytes> PTX_FUNCTION void cp_async(void* shared, const void* global, int valid = Bytes) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async copies 4, 8 or 16 bytes");
#ifdef __SWEEPER_EMULATOR__
  simt_copy_async(shared, global, Bytes, static_cast<unsigned>(Bytes - valid));
#else
  if (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
                 "r"(valid)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)), "l"(global),
                 "n"(Bytes), "r"(valid)
                 : "memory");
  }
#endif
}

// Makes one group of all copies that the thread has started since the last one.
PTX_FUNCTION void cp_async_commit() {
#ifdef __SWEEPER_EMULATOR__
  simt_copy_commit();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most the last `Groups` groups of the thread are under way.
template <int Groups> PTX_FUNCTION void cp_async_wait() {
#ifdef __SWEEPER_EMULATOR__
  simt_copy_wait(Groups);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
#endif
}

// Waits for all copies of the thread, in a group or not.
PTX_FUNCTION void cp_async_wait_all() {
#ifdef __SWEEPER_EMULATOR__
  simt_copy_wait(0);
#else
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

#undef PTX_FUNCTION

}  // namespace ptx
