"""Builds with nvcc, in child processes that can be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from sweeper.build.cache import BuildCache, build_key
from sweeper.build.cubin import CUBIN_NAME, LOG_NAME, CompileRequest
from sweeper.build.elf import CubinError, KernelImage, choose_kernel, read_kernels
from sweeper.build.messages import first_error, spill_bytes
from sweeper.build.source import TranslationUnit, cuda_text
from sweeper.build.toolkit import Nvcc, check_arch, find_nvcc
from sweeper.errors import StorageError, TrialFailed
from sweeper.model import Build, Stage, Status
from sweeper.process import Child, ChildDied, ChildTimeout, ChildUnkillable

__all__ = ["NvccBuilder"]

# -v makes ptxas report spills, which the cubin does not tell.
_OWN_OPTIONS = ("-Xptxas=-v",)
_FLAG_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN")
_CHILD_ENVIRONMENT = {
    "PYTHONUTF8": "1",  # PyCUDA writes the source in the locale's encoding
    "LC_ALL": "C.UTF-8",  # the host compiler's errors are looked for in English
    "LANGUAGE": "",
}


class NvccBuilder:
    """Compiles translation units to cubins. Safe to share between threads: each build has its own child.

    Children are kept for the next build; one that was killed is replaced. Nothing here imports PyCUDA.
    """

    kind = "nvcc"

    def __init__(self, cache: BuildCache, *, nvcc: Path | None = None) -> None:
        """Raises SetupError where there is no usable nvcc."""
        self.cache = cache
        self.nvcc: Nvcc = find_nvcc(nvcc)
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._closed = False

    def identity(self) -> str:
        """The compiler and its version: `nvcc 13.0.88`."""
        return self.nvcc.identity

    def check(self, arch: str) -> None:
        """Raise SetupError, before any build, where nvcc cannot compile for `arch`."""
        check_arch(self.nvcc, arch)

    def key(self, unit: TranslationUnit, arch: str) -> str:
        """The build's name in the cache. Flags that nvcc takes from the environment count."""
        inherited = tuple(f"{name}={os.environ[name]}" for name in _FLAG_VARIABLES if os.environ.get(name))
        return build_key(
            unit.digest,
            kind=self.kind,
            arch=arch,
            compiler=self.identity(),
            flags=(*_OWN_OPTIONS, *inherited),
        )

    def build(self, unit: TranslationUnit, *, arch: str, deadline_s: float) -> Build:
        """The build of `unit` for `arch` (`sm_90a`), from the cache where it is there.

        Raises TrialFailed with BUILD_TIMEOUT after `deadline_s`, when nvcc and all it started are
        gone, and with BUILD_ERROR otherwise; `details["log"]` is a file with all that nvcc said.
        Raises StorageError where the disk is full.
        """
        key = self.key(unit, arch)
        cached = self.cache.get(key)
        if cached is not None:
            return cached
        start = time.monotonic()
        with self.cache.staging() as folder:
            error = self._compile(unit, arch, folder, deadline_s)
            log = _read(folder / LOG_NAME)
            log_path = self._keep_log(key, log)
            if error:
                _refuse_full_disk(log, folder)
                raise _build_error(first_error(log) or error, error, log_path)
            kernel = _kernel(folder / CUBIN_NAME, unit, log_path)
            build = Build(
                key=key,
                kind=self.kind,
                artifact=Path(CUBIN_NAME),
                entry=kernel.symbol,
                compiler=self.identity(),
                options=(*unit.options, f"-arch={arch}"),
                registers=kernel.registers,
                static_shared_bytes=kernel.static_shared_bytes,
                local_bytes=kernel.local_bytes,
                spill_bytes=spill_bytes(log, kernel.symbol),
                seconds=time.monotonic() - start,
            )
            return self.cache.publish(build, folder / CUBIN_NAME)

    def _compile(self, unit: TranslationUnit, arch: str, folder: Path, deadline_s: float) -> str:
        """Compile into `folder`; the name of what was raised, or nothing for a cubin."""
        request = CompileRequest(
            text=cuda_text(unit),
            nvcc=str(self.nvcc.path),
            arch=arch,
            options=(*unit.options, *_defines(unit), *_OWN_OPTIONS),
            include_dirs=tuple(str(d) for d in unit.include_dirs),
            folder=str(folder),
        )
        try:
            with self._child() as child:
                reply = child.request(asdict(request), deadline_s=deadline_s)
        except (ChildTimeout, ChildUnkillable) as late:
            details = {"deadline_s": deadline_s, "type": type(late).__name__}
            reason = f"nvcc did not finish within {deadline_s:g} s"
            raise TrialFailed(Status.BUILD_TIMEOUT, Stage.BUILD, reason, details=details) from None
        except ChildDied as died:
            _refuse_full_disk(died.output, folder)
            details = {"type": "ChildDied", "output": died.output[-2000:]}
            reason = f"the build process ended: {died.message}"
            raise TrialFailed(Status.BUILD_ERROR, Stage.BUILD, reason, details=details) from None
        return str(reply["error"])

    @contextlib.contextmanager
    def _child(self) -> Iterator[Child]:
        """A running child for one build; kept afterwards if it still runs."""
        with self._lock:
            if self._closed:
                raise _cancelled()
            child = self._idle.pop() if self._idle else Child("sweeper.build.cubin", env=_CHILD_ENVIRONMENT)
            self._busy.add(child)
        answered = False
        try:
            if not child.alive:
                child.start()
            yield child
            answered = True
        finally:
            with self._lock:
                self._busy.discard(child)
                keep = answered and not self._closed
                if keep:
                    self._idle.append(child)
            if not keep:
                with contextlib.suppress(ChildUnkillable):
                    child.kill()

    def _keep_log(self, key: str, log: str) -> Path | None:
        path = self.cache.log_path(key)
        try:
            path.write_text(log, encoding="utf-8")
        except OSError:
            return None
        return path

    def close(self) -> None:
        """End every child, those that are compiling too; their builds end as BUILD_ERROR."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for child in self._busy:
                _kill_group(child)
        for child in idle:
            child.close()


def _kill_group(child: Child) -> None:
    """Kill a child that another thread is waiting for; that thread sees its end and cleans up."""
    pid = child.pid
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def _refuse_full_disk(said: str, folder: Path) -> None:
    """A full disk is nobody's configuration: it would fail every one that follows."""
    if "No space left on device" in said:
        raise StorageError(
            f"no space left while compiling in {folder}",
            hint="free some space, or set SWEEPER_CACHE to a folder on another disk",
        )


def _defines(unit: TranslationUnit) -> tuple[str, ...]:
    return tuple(f"-D{name}={value}" for name, value in unit.defines)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _kernel(cubin: Path, unit: TranslationUnit, log_path: Path | None) -> KernelImage:
    try:
        return choose_kernel(read_kernels(cubin.read_bytes()), unit.entry, unit.template_args)
    except CubinError as error:
        reason = f"{error}; {error.hint}" if error.hint else str(error)
        raise _build_error(reason, "CubinError", log_path) from None


def _build_error(reason: str, kind: str, log_path: Path | None) -> TrialFailed:
    details = {"type": kind} | ({"log": str(log_path)} if log_path else {})
    return TrialFailed(Status.BUILD_ERROR, Stage.BUILD, reason, details=details)


def _cancelled() -> TrialFailed:
    return TrialFailed(
        Status.BUILD_ERROR, Stage.BUILD, "the builder was closed", details={"type": "Cancelled"}
    )
