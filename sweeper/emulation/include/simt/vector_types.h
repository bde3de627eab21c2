// CUDA's built-in vector types with their sizes and alignments (CUDA C++ Programming Guide, "Built-in
// Vector Types"), and dim3.
#pragma once

#define SIMT_VECTOR_TYPES(scalar, name, align2, align4)                                              \
  struct name##1 { scalar x; };                                                                      \
  struct __attribute__((aligned(align2))) name##2 { scalar x, y; };                                  \
  struct name##3 { scalar x, y, z; };                                                                \
  struct __attribute__((aligned(align4))) name##4 { scalar x, y, z, w; };                            \
  inline constexpr name##1 make_##name##1(scalar x) { return {x}; }                                  \
  inline constexpr name##2 make_##name##2(scalar x, scalar y) { return {x, y}; }                     \
  inline constexpr name##3 make_##name##3(scalar x, scalar y, scalar z) { return {x, y, z}; }        \
  inline constexpr name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) { return {x, y, z, w}; }

SIMT_VECTOR_TYPES(signed char, char, 2, 4)
SIMT_VECTOR_TYPES(unsigned char, uchar, 2, 4)
SIMT_VECTOR_TYPES(short, short, 4, 8)
SIMT_VECTOR_TYPES(unsigned short, ushort, 4, 8)
SIMT_VECTOR_TYPES(int, int, 8, 16)
SIMT_VECTOR_TYPES(unsigned int, uint, 8, 16)
SIMT_VECTOR_TYPES(long, long, 16, 16)
SIMT_VECTOR_TYPES(unsigned long, ulong, 16, 16)
SIMT_VECTOR_TYPES(long long, longlong, 16, 16)
SIMT_VECTOR_TYPES(unsigned long long, ulonglong, 16, 16)
SIMT_VECTOR_TYPES(float, float, 8, 16)
SIMT_VECTOR_TYPES(double, double, 16, 16)
#undef SIMT_VECTOR_TYPES

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1) : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
