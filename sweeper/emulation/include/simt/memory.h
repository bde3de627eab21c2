// Loads and stores with cache hints, which mean nothing here, and address spaces, which are all one.
#pragma once
#include "abi.h"

template <class T> inline T __ldg(const T* address) { return *address; }
template <class T> inline T __ldca(const T* address) { return *address; }
template <class T> inline T __ldcg(const T* address) { return *address; }
template <class T> inline T __ldcs(const T* address) { return *address; }
template <class T> inline T __ldlu(const T* address) { return *address; }
template <class T> inline T __ldcv(const T* address) { return *const_cast<const volatile T*>(address); }
template <class T> inline void __stwb(T* address, T value) { *address = value; }
template <class T> inline void __stcg(T* address, T value) { *address = value; }
template <class T> inline void __stcs(T* address, T value) { *address = value; }
template <class T> inline void __stwt(T* address, T value) { *address = value; }

inline size_t __cvta_generic_to_shared(const void* address) { return reinterpret_cast<size_t>(address); }
inline size_t __cvta_generic_to_global(const void* address) { return reinterpret_cast<size_t>(address); }
inline void* __cvta_shared_to_generic(size_t address) { return reinterpret_cast<void*>(address); }
