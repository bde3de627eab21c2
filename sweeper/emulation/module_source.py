"""What a module is compiled from, and what of it the host's compiler is to know."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sweeper.emulation.native import INCLUDE_DIR

__all__ = ["ModuleSource", "host_options", "language", "prologue"]

# -ffast-math without what would let a compiler drop tests for NaN (-ffinite-math-only), and without the
# start-up code that would change the launcher's own floating-point mode.
_FAST_MATH = ("-fno-signed-zeros", "-freciprocal-math", "-fassociative-math")
_HEADER_OF_TYPE = {
    "__half": "cuda_fp16.h",
    "__half2": "cuda_fp16.h",
    "__nv_bfloat16": "cuda_bf16.h",
    "__nv_fp8_e4m3": "cuda_fp8.h",
}
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
# nvcc's options that concern its own tools and take a value as the next word.
_SEPARATE_VALUE = frozenset(
    (
        "-Xptxas", "--ptxas-options", "-Xcompiler", "--compiler-options", "-Xlinker", "-Xnvlink", "-arch",
        "--gpu-architecture", "-code", "--gpu-code", "-gencode", "--generate-code", "-maxrregcount", "--maxrregcount",
        "-ccbin", "--compiler-bindir", "-o",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """A kernel's text with everything that its compilation depends on.

    `entries` are C++ names of `__global__` functions (`mm<float, 16>`, `ns::mm`): entry i of the module.
    `cuda_arch` is what `__CUDA_ARCH__` expands to; `options` are nvcc's, see `host_options`. `headers`
    are included before the text; those of the types that entries and macros mention always are.
    """

    name: str
    text: str
    entries: tuple[str, ...]
    defines: tuple[tuple[str, str], ...] = ()
    include_dirs: tuple[Path, ...] = ()
    options: tuple[str, ...] = ()
    cuda_arch: int = 900
    headers: tuple[str, ...] = ()


def host_options(options: Sequence[str]) -> tuple[str, ...]:
    """Those of nvcc's `options` that mean something to a host compiler, in its own spelling.

    Macros, include folders and the language stay; `-use_fast_math` becomes a relaxation that keeps
    NaN; all else (registers, line tables, ptxas) concerns a GPU's code only.
    """
    kept: list[str] = []
    words = iter(options)
    for word in words:
        if word in ("-D", "-U", "-I"):
            kept.append(word + next(words, ""))
        elif word in ("-std", "--std"):
            kept.append(f"-std={_gnu(next(words, ''))}")
        elif word.startswith(("-D", "-U", "-I")):
            kept.append(word)
        elif word.startswith(("-std=", "--std=")):
            kept.append(f"-std={_gnu(word.partition('=')[2])}")
        elif word in ("-use_fast_math", "--use_fast_math"):
            kept += _FAST_MATH
        elif word in _SEPARATE_VALUE:
            next(words, "")
    return tuple(kept)


def _gnu(standard: str) -> str:
    """At least C++17, which the headers need, with the extensions that nvcc has on by default."""
    number = standard.removeprefix("c++").removeprefix("gnu++")
    return f"gnu++{number}" if number in ("17", "20", "23") else "gnu++17"


def language(source: ModuleSource) -> list[str]:
    """The standard, and what changes the meaning of arithmetic."""
    options = [o for o in host_options(source.options) if o.startswith(("-std=", "-f"))]
    return options if any(o.startswith("-std=") for o in options) else ["-std=gnu++17", *options]


def prologue(source: ModuleSource) -> str:
    """Our headers, then the macros: a kernel's macro may have any name, `T` and `lane` too, and must not
    reach into a header."""
    mentioned = " ".join([*source.entries, *(value for _, value in source.defines)])
    of_types = [h for t, h in _HEADER_OF_TYPE.items() if re.search(rf"\b{t}\b", mentioned)]
    headers = ["cuda_runtime.h", "simt/entry.h", *of_types, *source.headers, *_toolkit_headers(source)]
    lines = [f"#include <{header}>" for header in dict.fromkeys(headers)]
    lines += [_define(option) for option in host_options(source.options) if option.startswith(("-D", "-U"))]
    lines += [f"#define {name} {value}" for name, value in source.defines]
    return "\n".join([*lines, ""])


def _define(option: str) -> str:
    """`-DNAME=value`, `-DNAME` or `-UNAME` as a directive."""
    name, equals, value = option[2:].partition("=")
    if option.startswith("-U"):
        return f"#undef {name}"
    return f"#define {name} {value if equals else '1'}"


def _toolkit_headers(source: ModuleSource) -> list[str]:
    """Those of our headers that the text includes, itself or through the user's own headers."""
    found: dict[str, None] = {}
    texts, seen = [source.text], set[Path]()
    while texts:
        for name in _INCLUDE.findall(texts.pop()):
            own = [f for f in (d / name for d in source.include_dirs) if f.is_file() and f not in seen]
            if own:
                seen.add(own[0])
                texts.append(own[0].read_text(encoding="utf-8", errors="replace"))
            elif (INCLUDE_DIR / name).is_file():
                found[name] = None
    return list(found)
