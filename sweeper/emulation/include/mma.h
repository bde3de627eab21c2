// nvcuda::wmma: matrix fragments spread over the lanes of a warp. Which lane holds which element is left open
// by CUDA; here lane l holds elements l·n … l·n + n-1 of the tile in row-major order. Loads and stores let
// the lanes meet before they touch memory, and not after; the product is computed once a warp.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda {
namespace wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}

// How an element is stored in a fragment and what it is multiplied as. Hardware reads the upper 19 bits of a
// tf32 operand and ignores the rest.
template <class T> struct Traits {
  using Stored = T;
  using Factor = T;
  static Factor factor(T x) { return x; }
};
template <> struct Traits<__half> {
  using Stored = __half;
  using Factor = float;
  static float factor(__half x) { return x; }
};
template <> struct Traits<__nv_bfloat16> {
  using Stored = __nv_bfloat16;
  using Factor = float;
  static float factor(__nv_bfloat16 x) { return x; }
};
template <> struct Traits<precision::tf32> {
  using Stored = float;
  using Factor = float;
  static float factor(float x) { return simt::bits<float>(simt::bits<unsigned>(x) & 0xffffe000u); }
};
template <> struct Traits<signed char> {
  using Stored = signed char;
  using Factor = int;
  static int factor(signed char x) { return x; }
};
template <> struct Traits<unsigned char> {
  using Stored = unsigned char;
  using Factor = int;
  static int factor(unsigned char x) { return x; }
};

template <class Use, int M, int N, int K> struct Extent;
template <int M, int N, int K> struct Extent<matrix_a, M, N, K> {
  static constexpr int rows = M, columns = K;
};
template <int M, int N, int K> struct Extent<matrix_b, M, N, K> {
  static constexpr int rows = K, columns = N;
};
template <int M, int N, int K> struct Extent<accumulator, M, N, K> {
  static constexpr int rows = M, columns = N;
};

template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment {
  static constexpr int rows = Extent<Use, M, N, K>::rows, columns = Extent<Use, M, N, K>::columns;
  static constexpr int num_elements = rows * columns / 32;
  using element_type = typename Traits<T>::Stored;
  element_type x[num_elements];
};

template <class Use, int M, int N, int K, class T, class Layout, class V>
inline void fill_fragment(fragment<Use, M, N, K, T, Layout>& f, const V& value) {
  for (auto& element : f.x) element = value;
}

// Rounded to nearest, ties away from zero, as the instruction does (cvt.rna.tf32.f32).
inline float __float_to_tf32(float x) {
  return x == x ? simt::bits<float>((simt::bits<unsigned>(x) + 0x1000u) & 0xffffe000u) : x;
}

// Calls visit(element, offset in memory) for each element of the calling lane.
template <class Fragment, class Visit>
SIMT_INLINE void each_element(unsigned stride, bool row_major_layout, Visit visit) {
  SIMT_HERE();
  simt_sync_lanes(0xffffffffu, nullptr, nullptr);
  const int first = static_cast<int>(simt_thread->lane) * Fragment::num_elements;
  for (int i = 0; i < Fragment::num_elements; ++i) {
    const size_t row = static_cast<size_t>((first + i) / Fragment::columns),
                 column = static_cast<size_t>((first + i) % Fragment::columns);
    visit(i, row_major_layout ? row * stride + column : column * stride + row);
  }
}

template <class Layout> struct IsRowMajor;
template <> struct IsRowMajor<row_major> { static constexpr bool value = true; };
template <> struct IsRowMajor<col_major> { static constexpr bool value = false; };

template <class Use, int M, int N, int K, class T, class Layout, class E>
SIMT_INLINE void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f, const E* memory, unsigned stride) {
  each_element<fragment<Use, M, N, K, T, Layout>>(stride, IsRowMajor<Layout>::value,
                                                  [&](int i, size_t at) SIMT_PART { f.x[i] = memory[at]; });
}

template <int M, int N, int K, class T>
SIMT_INLINE void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const T* memory, unsigned stride,
                                  layout_t layout) {
  each_element<fragment<accumulator, M, N, K, T>>(stride, layout == mem_row_major,
                                                  [&](int i, size_t at) SIMT_PART { f.x[i] = memory[at]; });
}

template <int M, int N, int K, class T>
SIMT_INLINE void store_matrix_sync(T* memory, const fragment<accumulator, M, N, K, T>& f, unsigned stride,
                                   layout_t layout) {
  each_element<fragment<accumulator, M, N, K, T>>(stride, layout == mem_row_major,
                                                  [&](int i, size_t at) SIMT_PART { memory[at] = f.x[i]; });
}

template <int M, int N, int K, class TA, class TB, class TC, class TD> struct Product {
  const typename Traits<TA>::Stored* a;
  const typename Traits<TB>::Stored* b;
  const TC* c;
  TD* d;

  SIMT_UNCHECKED static void combine(void* const* payloads, unsigned) {
    using Factor = typename Traits<TA>::Factor;
    using Sum = typename Traits<TC>::Factor;
    Factor a[M * K], b[K * N];
    Sum sum[M * N];
    for (unsigned lane = 0; lane < 32; ++lane) {
      const auto* part = static_cast<const Product*>(payloads[lane]);
      for (int i = 0; i < M * K / 32; ++i) a[lane * (M * K / 32) + i] = Traits<TA>::factor(part->a[i]);
      for (int i = 0; i < K * N / 32; ++i) b[lane * (K * N / 32) + i] = Traits<TB>::factor(part->b[i]);
      for (int i = 0; i < M * N / 32; ++i) sum[lane * (M * N / 32) + i] = Traits<TC>::factor(part->c[i]);
    }
    for (int i = 0; i < M; ++i) {
      for (int k = 0; k < K; ++k) {
        for (int j = 0; j < N; ++j) sum[i * N + j] += a[i * K + k] * b[k * N + j];
      }
    }
    for (unsigned lane = 0; lane < 32; ++lane) {
      auto* part = static_cast<Product*>(payloads[lane]);
      for (int i = 0; i < M * N / 32; ++i) part->d[i] = sum[lane * (M * N / 32) + i];
    }
  }
};

template <int M, int N, int K, class TA, class LA, class TB, class LB, class TC, class TD>
SIMT_INLINE void mma_sync(fragment<accumulator, M, N, K, TD>& d, const fragment<matrix_a, M, N, K, TA, LA>& a,
                          const fragment<matrix_b, M, N, K, TB, LB>& b,
                          const fragment<accumulator, M, N, K, TC>& c, bool saturate = false) {
  (void)saturate;
  TD result[M * N / 32];
  Product<M, N, K, TA, TB, TC, TD> payload{a.x, b.x, c.x, result};
  SIMT_HERE();
  simt_sync_lanes(0xffffffffu, &payload, &Product<M, N, K, TA, TB, TC, TD>::combine);
  for (int i = 0; i < M * N / 32; ++i) d.x[i] = result[i];
}

}  // namespace wmma
}  // namespace nvcuda
