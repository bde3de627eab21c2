"""Builds with the host's C++ compiler, for the emulator."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path

from sweeper.build.cache import BuildCache
from sweeper.build.manifest import Recipe
from sweeper.build.source import TranslationUnit
from sweeper.emulation import (
    Compilation,
    HostCompiler,
    ModuleSource,
    compile_digest,
    compile_module,
    cpu_identity,
    find_compiler,
    headers_digest,
    launcher_path,
    static_shared_bytes,
)
from sweeper.errors import SetupError, TrialFailed
from sweeper.model import Build, Stage, Status

__all__ = ["HostBuilder"]

_MODULE_NAME = "module.so"
_DEFAULT_CUDA_ARCH = 900
_ARCH = re.compile(r"(?:sm|compute)_(\d{2,3})[a-z]?")


class HostBuilder:
    """Compiles translation units to modules of the emulator. Safe to share between threads.

    `portable` builds run on any CPU of this architecture, not only on this machine's kind; `checked`
    ones are for `launch(…, checked=True)` alone, and of a kind of their own.
    """

    kind = "host"

    def __init__(
        self,
        cache: BuildCache,
        *,
        compiler: HostCompiler | None = None,
        portable: bool = False,
        checked: bool = False,
    ) -> None:
        """Raises SetupError where there is no C++ compiler."""
        self.cache = cache
        self.compiler = compiler or find_compiler()
        self.portable = portable
        self.checked = checked
        if checked:
            self.kind = "host-checked"
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def identity(self) -> str:
        """The compiler and its version: `gcc g++ (Debian 12.2.0-14) 12.2.0 for x86_64`."""
        return self.compiler.identity

    def check(self, arch: str) -> None:
        """Raise SetupError where `arch` (`sm_90a`, or `host` for the newest) is not one."""
        _cuda_arch(arch)

    def warm(self, count: int) -> None:
        """Nothing is made ready: a compiler is a process a build."""

    def recipe(self, arch: str) -> Recipe:
        """What a build's name depends on: beside the unit it knows our headers and this machine's CPU."""
        cpu = "any" if self.portable else cpu_identity()
        return Recipe(
            self.kind,
            str(_cuda_arch(arch)),
            " ".join((*self.compiler.command, self.identity())),
            self.identity(),
            (headers_digest(), cpu, compile_digest()),
        )

    def key(self, unit: TranslationUnit, arch: str) -> str:
        """The build's name in the cache."""
        return self.recipe(arch).key(unit.digest)

    def build(self, unit: TranslationUnit, *, arch: str, deadline_s: float) -> Build:
        """The module of `unit` for a GPU of `arch`, from the cache where it is there.

        Raises TrialFailed with BUILD_TIMEOUT after `deadline_s`, when the compiler and all it started
        are gone, and with BUILD_ERROR otherwise; `details["log"]` is a file with all that it said, and
        `details["type"]` is NotEmulable where the kernel uses what only a GPU has.
        """
        key = self.key(unit, arch)
        cached = self.cache.get(key)
        if cached is not None:
            return cached
        source = ModuleSource(
            name=unit.name,
            text=unit.text,
            entries=(unit.signature,),
            defines=unit.defines,
            include_dirs=unit.include_dirs,
            options=unit.options,
            cuda_arch=_cuda_arch(arch),
        )
        with self.cache.staging() as folder:
            module = folder / _MODULE_NAME
            done = self._compile(source, module, folder, deadline_s)
            self._require(done, key, deadline_s)
            build = Build(
                key=key,
                kind=self.kind,
                artifact=Path(_MODULE_NAME),
                entry=unit.signature,
                compiler=self.identity(),
                options=unit.options,
                static_shared_bytes=static_shared_bytes(module),
                seconds=done.seconds,
            )
            return self.cache.publish(build, module)

    def _compile(self, source: ModuleSource, module: Path, folder: Path, deadline_s: float) -> Compilation:
        if self._closed:
            raise TrialFailed(
                Status.BUILD_ERROR, Stage.BUILD, "the builder was closed", details={"type": "Cancelled"}
            )
        return compile_module(
            source,
            module,
            compiler=self.compiler,
            folder=folder,
            deadline_s=deadline_s,
            portable=self.portable,
            checked=self.checked,
            supervisor=launcher_path(self.compiler),
            running=self._running,
        )

    def _require(self, done: Compilation, key: str, deadline_s: float) -> None:
        """Keep the log of a compilation, and raise TrialFailed if it failed."""
        log = self.cache.log_path(key)
        details: dict[str, object] = {}
        if done.log:
            with contextlib.suppress(OSError):
                log.write_text(done.log, encoding="utf-8")
                details["log"] = str(log)
        if done.timed_out:
            raise TrialFailed(
                Status.BUILD_TIMEOUT,
                Stage.BUILD,
                f"the compiler did not finish within {deadline_s:g} s",
                details={**details, "deadline_s": deadline_s},
            )
        if not done.ok:
            kind = "NotEmulable" if done.findings else "CompileError"
            raise TrialFailed(Status.BUILD_ERROR, Stage.BUILD, done.error, details={**details, "type": kind})

    def close(self) -> None:
        """End every compiler that is running; its build ends as BUILD_ERROR."""
        self._closed = True
        for process in tuple(self._running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _cuda_arch(arch: str) -> int:
    """What `__CUDA_ARCH__` is for `arch`: 900 for `sm_90a`."""
    if arch == "host":
        return _DEFAULT_CUDA_ARCH
    match = _ARCH.fullmatch(arch)
    if not match:
        raise SetupError(f"{arch!r} is not an architecture", hint="write it like sm_90a")
    return int(match[1]) * 10
