"""A kernel's source compiled to a module that the launcher can run."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sweeper.emulation.compiler import CompilerRun, HostCompiler, run_compiler
from sweeper.emulation.native import INCLUDE_DIR, without_library
from sweeper.emulation.translate import ENTRIES_FILE, translate

__all__ = ["Compilation", "ModuleSource", "compile_module", "host_options"]

# Contraction as a GPU has it. A GPU has neither errno nor floating-point traps. A large stack frame is
# touched page by page, so that it cannot reach over the inaccessible page at the stack's end.
_FLAGS = (
    "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared", "-fvisibility=hidden",
    "-fno-asynchronous-unwind-tables", "-fstack-clash-protection", "-w",
)  # fmt: skip
# -ffast-math without what would let a compiler drop tests for NaN (-ffinite-math-only), and without the
# start-up code that would change the launcher's own floating-point mode.
_FAST_MATH = ("-fno-signed-zeros", "-freciprocal-math", "-fassociative-math")
# The language of what is preprocessed already; clang as ziglang wraps it has no name for that.
_PREPROCESSED = {"gcc": "c++-cpp-output", "clang": "c++"}
_HEADER_OF_TYPE = {"__half": "cuda_fp16.h", "__half2": "cuda_fp16.h", "__nv_bfloat16": "cuda_bf16.h"}

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_ERROR = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)$", re.MULTILINE
)
_ANY_ERROR = re.compile(r"^.*\b(?:[Ee]rror|undefined reference|undefined symbol)\b.*$", re.MULTILINE)
# What an assembler or compiler says of instructions and operands that are a GPU's.
_PTX = re.compile(
    r"no such instruction|invalid instruction mnemonic|unrecognized instruction|too many memory references|constraint\b"
)
_LINE_LIMIT = 500
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


@dataclass(frozen=True, slots=True)
class Compilation:
    """How it went: `error` is the first error in one line, empty where there is none."""

    error: str
    log: str
    timed_out: bool
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.error and not self.timed_out


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


def compile_module(
    source: ModuleSource,
    output: Path,
    *,
    compiler: HostCompiler,
    folder: Path,
    deadline_s: float,
    portable: bool = False,
    supervisor: Path | None = None,
    running: set[subprocess.Popen[bytes]] | None = None,
) -> Compilation:
    """Compile `source` to the shared object `output`, with temporary files in `folder`.

    `portable` code runs on every CPU of the architecture instead of this one's kind only; `supervisor`
    and `running` are as for `run_compiler`.
    """
    start = time.monotonic()
    run = partial(
        run_compiler,
        compiler,
        folder=folder,
        deadline=start + deadline_s,
        supervisor=supervisor,
        running=running,
    )
    text, preprocessed = folder / "kernel.cu", folder / "kernel.ii"
    text.write_text(_prologue(source) + source.text, encoding="utf-8")
    language = _language(source)
    ended = run(_preprocess(source, language, text, preprocessed))
    log = ended.log
    if ended.ok:
        lines = preprocessed.read_text(encoding="utf-8", errors="surrogateescape")
        preprocessed.write_text(translate(lines, source.entries), encoding="utf-8", errors="surrogateescape")
        target = [] if portable else ["-march=native"]
        files = ["-x", _PREPROCESSED[compiler.kind], str(preprocessed), "-o", str(output)]
        ended = run([*language, *_FLAGS, *target, *_link(compiler), *files])
        log += ended.log
    return Compilation(_error(ended, log, source), log, ended.code is None, time.monotonic() - start)


def _language(source: ModuleSource) -> list[str]:
    """The standard, and what changes the meaning of arithmetic."""
    options = [o for o in host_options(source.options) if o.startswith(("-std=", "-f"))]
    return options if any(o.startswith("-std=") for o in options) else ["-std=gnu++17", *options]


def _link(compiler: HostCompiler) -> list[str]:
    """The launcher has the functions that a module leaves undefined; libraries that it does not use would
    only be loaded at every launch."""
    return [
        "-Wl,--as-needed",
        *(["-Wl,-z,undefs"] if compiler.kind == "clang" else []),
        *without_library(compiler),
    ]


def _preprocess(source: ModuleSource, language: list[str], text: Path, output: Path) -> list[str]:
    options = [o for o in host_options(source.options) if not o.startswith(("-std=", "-f", "-D", "-U"))]
    folders = [str(d) for d in source.include_dirs]
    return [
        *language,
        *options,
        f"-D__CUDA_ARCH__={source.cuda_arch}",
        f"-I{INCLUDE_DIR}",
        *(part for folder in folders for part in ("-iquote", folder)),
        *(f"-I{folder}" for folder in folders),
        *("-E", "-x", "c++", str(text), "-o", str(output)),
    ]


def _prologue(source: ModuleSource) -> str:
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


def _error(run: CompilerRun, log: str, source: ModuleSource) -> str:
    """The first error in one line: `tiled.cu:12: expected ';'`."""
    if run.ok or run.code is None:
        return ""
    line = _shorten(next(_error_lines(log, source), f"the compiler ended with code {run.code}"))
    if _PTX.search(log):
        line += " (inline PTX has no meaning on a CPU: give the kernel another way under #ifdef __SWEEPER_EMULATOR__)"
    return line


def _error_lines(log: str, source: ModuleSource) -> Iterator[str]:
    for match in _ERROR.finditer(log):
        if match["file"] == ENTRIES_FILE:
            entry = source.entries[min(int(match["line"]), len(source.entries)) - 1]
            yield f"{source.name}: no kernel {entry}: {match['text']}"
        else:
            yield f"{Path(match['file']).name}:{match['line']}: {match['text']}"
    for match in _ANY_ERROR.finditer(log):
        yield match.group().strip()


def _shorten(line: str) -> str:
    return line if len(line) <= _LINE_LIMIT else line[: _LINE_LIMIT - 1] + "…"
