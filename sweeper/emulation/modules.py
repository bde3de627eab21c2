"""A kernel's source compiled to a module that the launcher can run."""

from __future__ import annotations

import functools
import hashlib
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sweeper.emulation.assembly import find_assembly
from sweeper.emulation.compiler import CompilerRun, HostCompiler, run_compiler
from sweeper.emulation.diagnostics import first_error, not_emulable, only_for_gpus
from sweeper.emulation.findings import Finding
from sweeper.emulation.module_source import ModuleSource, host_options, language, prologue
from sweeper.emulation.native import INCLUDE_DIR, without_library
from sweeper.emulation.objects import prepare
from sweeper.emulation.translate import translate

__all__ = ["Compilation", "compile_digest", "compile_module"]

# Contraction as a GPU has it. A GPU has neither errno nor floating-point traps. A large stack frame is
# touched page by page, so that it cannot reach over the inaccessible page at the stack's end.
_FLAGS = (
    "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared", "-fvisibility=hidden",
    "-fno-asynchronous-unwind-tables", "-fstack-clash-protection", "-w",
)  # fmt: skip
# A checked module tells of every access (-fsanitize=thread) and of what no arithmetic allows; nobody's
# runtime is linked: the launcher has the callbacks. Contraction and the processor are as above. Every variable
# has a section of its own, so that room can be made behind it.
_CHECKED_FLAGS = (
    "-O1", "-g", "-gdwarf-4", "-fsanitize=thread",
    "-fsanitize=alignment,shift-exponent,integer-divide-by-zero,signed-integer-overflow",
    "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-fvisibility=hidden", "-fdata-sections",
    "-fno-builtin-memcpy", "-fno-builtin-memmove", "-fno-builtin-memset", "-fno-optimize-sibling-calls",
    "-fno-asynchronous-unwind-tables", "-fstack-clash-protection", "-w",
)  # fmt: skip
# Clang's group of the name `bounds` has a part that only traps; it tells of no read before a write of the same
# place unless asked to.
_CHECKED_FLAGS_OF = {
    "gcc": ("-fsanitize=bounds", "--param", "tsan-distinguish-volatile=1"),
    "clang": (
        "-fsanitize=array-bounds", "-mllvm", "-tsan-distinguish-volatile=1",
        "-mllvm", "-tsan-instrument-read-before-write=1", "-mllvm", "-tsan-handle-cxx-exceptions=0",
    ),
}  # fmt: skip
# The launcher's own, which know who called.
_RENAMED = {name: f"simt_{name}" for name in ("memcpy", "memmove", "memset")}
# The language of what is preprocessed already; clang as ziglang wraps it has no name for that.
_PREPROCESSED = {"gcc": "c++-cpp-output", "clang": "c++"}


@dataclass(frozen=True, slots=True)
class Compilation:
    """How it went: `error` is the first error in one line, empty where there is none.

    `findings` are what of the kernel only a GPU has, where that is why there is no module.
    """

    error: str
    log: str
    timed_out: bool
    seconds: float
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.error and not self.timed_out


@functools.cache
def compile_digest() -> str:
    """How sources become modules: what else they depend on beside their text, headers and compiler."""
    files = [
        Path(__file__).with_name(name)
        for name in ("modules.py", "module_source.py", "translate.py", "objects.py", "elf.py")
    ]
    content = b"\0".join(file.read_bytes() for file in files)
    return hashlib.sha256(content).hexdigest()[:16]


def compile_module(
    source: ModuleSource,
    output: Path,
    *,
    compiler: HostCompiler,
    folder: Path,
    deadline_s: float,
    portable: bool = False,
    checked: bool = False,
    supervisor: Path | None = None,
    running: set[subprocess.Popen[bytes]] | None = None,
) -> Compilation:
    """Compile `source` to the shared object `output`, with temporary files in `folder`.

    A `checked` module tells what it does to memory, for `launch(…, checked=True)`.
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
    work = _Work(source, compiler, folder, run, checked=checked, portable=portable)
    ended, only_gpu = work.compile(output)
    error = first_error(ended, work.log, source)
    if not only_gpu:
        only_gpu = only_for_gpus(error, work.log, work.assembly)
    if only_gpu:
        error = not_emulable(only_gpu)
    return Compilation(error, work.log, ended.code is None, time.monotonic() - start, only_gpu)


class _Work:
    """One compilation; `log` is all that compilers said, `assembly` what there is of inline PTX."""

    def __init__(
        self,
        source: ModuleSource,
        compiler: HostCompiler,
        folder: Path,
        run: Callable[[list[str]], CompilerRun],
        *,
        checked: bool,
        portable: bool,
    ) -> None:
        self.source, self.compiler, self.folder = source, compiler, folder
        self.checked, self.portable = checked, portable
        self.log = ""
        self.assembly: tuple[Finding, ...] = ()
        self._language = language(source)
        self._start = run

    def compile(self, output: Path) -> tuple[CompilerRun, tuple[Finding, ...]]:
        """How the last compiler ended, and what keeps the source from being compiled at all."""
        text, preprocessed = self.folder / "kernel.cu", self.folder / "kernel.ii"
        text.write_text(prologue(self.source) + self.source.text, encoding="utf-8")
        ended = self._run(self._preprocess(text, preprocessed))
        if not ended.ok:
            return ended, ()
        lines = preprocessed.read_text(encoding="utf-8", errors="surrogateescape")
        self.assembly = find_assembly(lines)
        if self.checked and self.assembly:
            return ended, self.assembly
        lines = translate(lines, self.source.entries, checked=self.checked)
        preprocessed.write_text(lines, encoding="utf-8", errors="surrogateescape")
        target = [] if self.portable else ["-march=native"]
        options = [*self._language, *target, "-x", _PREPROCESSED[self.compiler.kind], str(preprocessed)]
        if self.checked:
            return self._checked(options, output), ()
        return self._run([*_FLAGS, *_link(self.compiler), *options, "-o", str(output)]), ()

    def _run(self, arguments: list[str]) -> CompilerRun:
        ended = self._start(arguments)
        self.log += ended.log
        return ended

    def _preprocess(self, text: Path, output: Path) -> list[str]:
        kept = host_options(self.source.options)
        options = [o for o in kept if not o.startswith(("-std=", "-f", "-D", "-U"))]
        folders = [str(d) for d in self.source.include_dirs]
        return [
            *self._language,
            *options,
            f"-D__CUDA_ARCH__={self.source.cuda_arch}",
            *(["-D__SWEEPER_CHECKED__"] if self.checked else []),
            f"-I{INCLUDE_DIR}",
            *(part for folder in folders for part in ("-iquote", folder)),
            *(f"-I{folder}" for folder in folders),
            *("-E", "-x", "c++", str(text), "-o", str(output)),
        ]

    def _checked(self, options: list[str], output: Path) -> CompilerRun:
        """Compile, make room between shared variables, and link without any sanitizer's runtime."""
        middle = self.folder / "kernel.o"
        ended = self._run(
            [*_CHECKED_FLAGS, *_CHECKED_FLAGS_OF[self.compiler.kind], *options, "-c", "-o", str(middle)]
        )
        if not ended.ok:
            return ended
        prepare(middle, _RENAMED)
        # Only ziglang asks for the level of optimisation here: without one it adds a runtime of its own.
        return self._run(["-O2", "-shared", *_link(self.compiler), str(middle), "-o", str(output)])


def _link(compiler: HostCompiler) -> list[str]:
    """The launcher has the functions that a module leaves undefined; libraries that it does not use would
    only be loaded at every launch."""
    return [
        "-Wl,--as-needed",
        *(["-Wl,-z,undefs"] if compiler.kind == "clang" else []),
        *without_library(compiler),
    ]
