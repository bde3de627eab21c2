"""Standard headers for NVRTC, which has none of its own: each one gives libcu++'s, under the usual names.

`std::` is then `cuda::std::`. Macros and functions that NVRTC has built in need no header, but sources
that are compiled elsewhere too ask for it.
"""

from __future__ import annotations

__all__ = ["STANDARD_HEADERS"]

# Declared first: a header of macros alone does not open the namespaces.
_STD = "namespace cuda { namespace std {} }\nnamespace std { using namespace ::cuda::std; }\n"
_CPP = (
    "array", "atomic", "bit", "bitset", "cassert", "cfloat", "chrono", "climits", "cmath", "complex", "concepts",
    "cstddef", "cstdint", "cstdlib", "cstring", "ctime", "expected", "functional", "initializer_list", "iterator",
    "latch", "limits", "memory", "numbers", "numeric", "optional", "ratio", "semaphore", "span", "tuple",
    "type_traits", "utility", "variant",
)  # fmt: skip
_C = ("assert", "float", "limits", "stddef", "stdint", "stdlib", "string", "time")
# printf and the functions of mathematics are NVRTC's own.
_NOTHING = ("cstdio", "stdio.h", "math.h")

STANDARD_HEADERS: dict[str, str] = {
    **{name: f"#pragma once\n#include <cuda/std/{name}>\n{_STD}" for name in _CPP},
    # Its name changed between releases of libcu++.
    "algorithm": "#pragma once\n#if __has_include(<cuda/std/algorithm>)\n#include <cuda/std/algorithm>\n"
    f"#else\n#include <cuda/std/__algorithm_>\n#endif\n{_STD}",
    **{f"{name}.h": f"#pragma once\n#include <cuda/std/c{name}>\n" for name in _C},
    **dict.fromkeys(_NOTHING, "#pragma once\n"),
}
"""Text by the name it is included by."""
