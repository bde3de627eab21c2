// The table of contents that translate.py appends to a kernel's text: for each entry how to call it with
// arguments by address, and what its parameters are. Preprocessing is over by then: no macros here.
#pragma once
#include "abi.h"
#include "keywords.h"

namespace simt {

template <class Format> struct Narrow;
struct Binary16;
struct Bfloat16;

template <class T, bool = __is_class(T)> struct KindOf {
  static constexpr char value = 'i';
};
template <class T> struct KindOf<T, true> {
  static constexpr char value = 's';
};
template <> struct KindOf<float, false> {
  static constexpr char value = 'f';
};
template <> struct KindOf<double, false> {
  static constexpr char value = 'f';
};
template <> struct KindOf<void, false> {
  static constexpr char value = 'v';
};
template <> struct KindOf<Narrow<Binary16>, true> {
  static constexpr char value = 'h';
};
template <> struct KindOf<Narrow<Bfloat16>, true> {
  static constexpr char value = 'b';
};
template <> struct KindOf<char, false> {
  static constexpr char value = 'c';
};
template <> struct KindOf<unsigned char, false> {
  static constexpr char value = 'c';
};
template <class T> struct KindOf<T*, false> {
  static constexpr char value = 'p';
};

template <class T> struct Plain {
  using type = T;
  static constexpr bool constant = false;
};
template <class T> struct Plain<const T> {
  using type = typename Plain<T>::type;
  static constexpr bool constant = true;
};
template <class T> struct Plain<volatile T> {
  using type = T;
  static constexpr bool constant = false;
};
template <class T> struct Plain<const volatile T> {
  using type = T;
  static constexpr bool constant = true;
};

template <class T> struct Bytes {
  static constexpr uint32_t value = sizeof(T);
};
template <> struct Bytes<void> {
  static constexpr uint32_t value = 0;
};

template <class T> struct Describe {
  using Value = typename Plain<T>::type;
  static constexpr char kind = KindOf<Value>::value == 'c' ? 'i' : KindOf<Value>::value;
  static constexpr Parameter parameter{kind, 'v', false, sizeof(T), 0};
};
template <class T> struct Describe<T*> {
  using Pointee = typename Plain<T>::type;
  static constexpr Parameter parameter{'p', KindOf<Pointee>::value, Plain<T>::constant, sizeof(T*),
                                       Bytes<Pointee>::value};
};
template <class T> struct Describe<T* const> : Describe<T*> {};

template <unsigned... I> struct Indices {};
template <unsigned N, unsigned... I> struct Counting : Counting<N - 1, N - 1, I...> {};
template <unsigned... I> struct Counting<0, I...> {
  using type = Indices<I...>;
};

template <auto* Function> struct Entry;
template <class... Arguments, void (*Function)(Arguments...)> struct Entry<Function> {
  static constexpr Parameter parameters[sizeof...(Arguments) + 1] = {Describe<Arguments>::parameter...,
                                                                     Parameter{}};

  template <unsigned... I> SIMT_UNCHECKED static void call(void* const* arguments, Indices<I...>) {
    Function(*static_cast<typename Plain<Arguments>::type*>(arguments[I])...);
  }
  SIMT_UNCHECKED static void run(void* const* arguments) {
    call(arguments, typename Counting<sizeof...(Arguments)>::type{});
  }
  static constexpr Kernel kernel() { return {&run, parameters, sizeof...(Arguments)}; }
};

}  // namespace simt
