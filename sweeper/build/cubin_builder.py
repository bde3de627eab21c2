"""What the builders of cubins share: a child a build that can be killed, the log, the figures, the cache."""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from sweeper.build.cache import BuildCache
from sweeper.build.cubin import CUBIN_NAME, LOG_NAME
from sweeper.build.elf import CubinError, KernelImage, choose_kernel, read_kernels
from sweeper.build.manifest import Recipe
from sweeper.build.messages import first_error, spill_bytes
from sweeper.build.source import TranslationUnit
from sweeper.errors import SetupError, StorageError, TrialFailed
from sweeper.model import Build, Stage, Status
from sweeper.process import Child, ChildDied, ChildError, ChildTimeout, ChildUnkillable

__all__ = ["CubinBuilder"]

Message = dict[str, Any]

_WARM_S = 60.0


class CubinBuilder(ABC):
    """Compiles translation units to cubins. Safe to share between threads: each build has its own child.

    Children are kept for the next build; one that was killed is replaced. `module` is what a child runs,
    with `environment` beside this process's own. A child answers a request with `error`, what was raised
    or nothing, and leaves cubin and log in the folder that the request names.
    """

    kind: ClassVar[str]
    module: ClassVar[str]
    environment: ClassVar[Mapping[str, str]] = {}

    def __init__(self, cache: BuildCache) -> None:
        self.cache = cache
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._closed = False

    @abstractmethod
    def identity(self) -> str:
        """The compiler and its version: `nvcc 13.0.88`."""

    @abstractmethod
    def check(self, arch: str) -> None:
        """Raise SetupError, before any build, where the compiler cannot compile for `arch`."""

    @abstractmethod
    def recipe(self, arch: str) -> Recipe:
        """What a build's name in the cache depends on beside the unit."""

    def key(self, unit: TranslationUnit, arch: str) -> str:
        """The build's name in the cache."""
        return self.recipe(arch).key(unit.digest)

    @abstractmethod
    def _request(self, unit: TranslationUnit, arch: str, folder: Path) -> Message:
        """What a child is asked, for a cubin of `unit` in `folder`."""

    def warm(self, count: int) -> None:
        """Start `count` children, with what they need loaded, in the background: the first builds find them."""
        # Taken before any is started: a child that is quickly warm would be taken for the next one too.
        with contextlib.suppress(TrialFailed):
            for child in [self._take() for _ in range(count)]:
                threading.Thread(
                    target=self._start_one, args=(child,), name="warming a compiler", daemon=True
                ).start()

    def _start_one(self, taken: Child) -> None:
        # Whatever is wrong, a build will meet it and say so.
        with contextlib.suppress(TrialFailed, ChildError, SetupError), self._child(taken) as child:
            child.request({"op": "warm"}, deadline_s=_WARM_S)

    def build(self, unit: TranslationUnit, *, arch: str, deadline_s: float) -> Build:
        """The build of `unit` for `arch` (`sm_90a`), from the cache where it is there.

        Raises TrialFailed with BUILD_TIMEOUT after `deadline_s`, when the compiler and all it started are
        gone, and with BUILD_ERROR otherwise; `details["log"]` is a file with all that the compiler said.
        Raises StorageError where the disk is full.
        """
        key = self.key(unit, arch)
        cached = self.cache.get(key)
        if cached is not None:
            return cached
        start = time.monotonic()
        with self.cache.staging() as folder:
            reply = self._compile(self._request(unit, arch, folder), folder, deadline_s)
            log = _read(folder / LOG_NAME)
            log_path = self._keep_log(key, log)
            if reply["error"]:
                _refuse_full_disk(log, folder)
                reason = first_error(log) or str(reply["error"])
                raise _build_error(self._explained(reason), str(reply["error"]), log_path)
            kernel = _kernel(folder / CUBIN_NAME, unit, reply.get("symbol"), log_path)
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

    def _explained(self, reason: str) -> str:
        """`reason` with what a user of this compiler should know of it."""
        return reason

    def _compile(self, request: Message, folder: Path, deadline_s: float) -> Message:
        try:
            with self._child() as child:
                return child.request(request, deadline_s=deadline_s)
        except (ChildTimeout, ChildUnkillable) as late:
            details = {"deadline_s": deadline_s, "type": type(late).__name__}
            reason = f"{self.kind} did not finish within {deadline_s:g} s"
            raise TrialFailed(Status.BUILD_TIMEOUT, Stage.BUILD, reason, details=details) from None
        except ChildDied as died:
            _refuse_full_disk(died.output, folder)
            details = {"type": "ChildDied", "output": died.output[-2000:]}
            reason = f"the build process ended: {died.message}"
            raise TrialFailed(Status.BUILD_ERROR, Stage.BUILD, reason, details=details) from None

    def _take(self) -> Child:
        """A child for one build, idle or new. Raises TrialFailed where the builder is closed."""
        with self._lock:
            if self._closed:
                raise _cancelled()
            child = self._idle.pop() if self._idle else Child(self.module, env=self.environment)
            self._busy.add(child)
            return child

    @contextlib.contextmanager
    def _child(self, taken: Child | None = None) -> Iterator[Child]:
        """A running child for one build (`taken` before); kept afterwards if it still runs."""
        child = taken or self._take()
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
                # Its thread sees the end and cleans up.
                child.end_group()
        for child in idle:
            child.close()


def _refuse_full_disk(said: str, folder: Path) -> None:
    """A full disk is nobody's configuration: it would fail every one that follows."""
    if "No space left on device" in said:
        raise StorageError(
            f"no space left while compiling in {folder}",
            hint="free some space, or set SWEEPER_CACHE to a folder on another disk",
        )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _kernel(cubin: Path, unit: TranslationUnit, symbol: str | None, log_path: Path | None) -> KernelImage:
    """The entry in `cubin`: the kernel called `symbol`, or where the compiler did not say, the one that fits."""
    try:
        kernels = read_kernels(cubin.read_bytes())
        named = [kernel for kernel in kernels if kernel.symbol == symbol]
        return named[0] if named else choose_kernel(kernels, unit.entry, unit.template_args)
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
