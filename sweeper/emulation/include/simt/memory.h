// Loads and stores with cache hints, which mean nothing here, and address spaces, which are all one.
#pragma once
#include "abi.h"
#include "keywords.h"

template <class T> SIMT_INLINE T __ldg(const T* address) { return *address; }
template <class T> SIMT_INLINE T __ldca(const T* address) { return *address; }
template <class T> SIMT_INLINE T __ldcg(const T* address) { return *address; }
template <class T> SIMT_INLINE T __ldcs(const T* address) { return *address; }
template <class T> SIMT_INLINE T __ldlu(const T* address) { return *address; }
template <class T> SIMT_INLINE T __ldcv(const T* address) { return *const_cast<const volatile T*>(address); }
template <class T> SIMT_INLINE void __stwb(T* address, T value) { *address = value; }
template <class T> SIMT_INLINE void __stcg(T* address, T value) { *address = value; }
template <class T> SIMT_INLINE void __stcs(T* address, T value) { *address = value; }
template <class T> SIMT_INLINE void __stwt(T* address, T value) { *address = value; }

inline size_t __cvta_generic_to_shared(const void* address) { return reinterpret_cast<size_t>(address); }
inline size_t __cvta_generic_to_global(const void* address) { return reinterpret_cast<size_t>(address); }
inline void* __cvta_shared_to_generic(size_t address) { return reinterpret_cast<void*>(address); }
