// C's <math.h> without the C++ library's overloads, which cost more to parse than most kernels: simt/math.h
// has those that CUDA promises. The library's own <cmath> can still be included beside it.
#if __has_include(<__config>)
#include_next <math.h>
#else
#ifndef _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include_next <math.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#else
#include_next <math.h>
#endif
#endif
#pragma once
#include "simt/math.h"
