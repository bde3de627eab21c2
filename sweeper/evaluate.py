"""What the loop needs of the world: a point goes in, an outcome or a reasoned failure comes out.

`LiveEvaluator` builds ahead in a pool and measures in the process that owns the device;
`ReplayEvaluator` looks a recorded table up. The loop knows neither.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sweeper.backend.base import MeasureProtocol, Outcome
from sweeper.backend.replay import ReplayTable
from sweeper.build.make import make_builder
from sweeper.build.pool import BuildPool
from sweeper.build.source import translation_unit
from sweeper.config import BackendConfig, BuildConfig, Config
from sweeper.device import DeviceIdentity, Target, target
from sweeper.errors import ConfigError, did_you_mean
from sweeper.model import Build, KernelSpec, Point, TimeSource
from sweeper.worker.pool import DeviceWorker

__all__ = ["Evaluator", "LiveEvaluator", "ReplayEvaluator", "Ticket", "make_evaluator"]


@dataclass(frozen=True, slots=True)
class Ticket:
    """A point on its way: its build is under way, or there is nothing to build."""

    point: Point
    build: Future[Build] | None


class Evaluator(Protocol):
    """Runs points one at a time, in the order they are finished in."""

    backend: str
    time_source: TimeSource
    target: Target
    identity: DeviceIdentity
    compiler: str

    def prepare(self, spec: KernelSpec, dims: Mapping[str, int], seed: int) -> None: ...

    def submit(self, point: Point) -> Ticket:
        """Begin to build `point`; returns at once."""
        ...

    def finish(self, ticket: Ticket) -> Outcome:
        """Wait for the build, run it, and give what came of it. Raises TrialFailed."""
        ...

    def baseline(self, library: str) -> Outcome:
        """The library's own kernel for the prepared problem. Raises TrialFailed."""
        ...

    def close(self) -> None: ...


class LiveEvaluator:
    """Builds in a pool of compilers and runs in a worker process, on a GPU or in the emulator.

    Raises SetupError from the constructor where the device or the compiler cannot be used.
    """

    def __init__(
        self, backend: str, config: BackendConfig, build: BuildConfig, protocol: MeasureProtocol
    ) -> None:
        self.backend = backend
        self.time_source = TimeSource.MEASURED if backend == "cuda" else TimeSource.PREDICTED
        self._protocol = protocol
        self._worker = DeviceWorker(backend, device=config.device, target=config.target)
        self.target, self.identity = self._worker.open()
        try:
            arch = self.target.arch if backend == "cuda" else "host"
            builder = make_builder(backend, build.compiler, cache=build.cache)
            builder.check(arch)
            self.compiler = builder.identity()
            self._pool = BuildPool(
                builder, workers=build.workers or os.cpu_count() or 1, arch=arch, deadline_s=build.deadline_s
            )
        except BaseException:
            self._worker.close()
            raise
        self._spec: KernelSpec | None = None

    def prepare(self, spec: KernelSpec, dims: Mapping[str, int], seed: int) -> None:
        self._spec = spec
        self._worker.prepare(spec, dims, seed)

    def submit(self, point: Point) -> Ticket:
        if self._spec is None:
            raise AssertionError("prepare comes first")
        return Ticket(point, self._pool.submit(translation_unit(self._spec, point)))

    def finish(self, ticket: Ticket) -> Outcome:
        if ticket.build is None:
            raise AssertionError("a live ticket has a build")
        return self._worker.measure(ticket.point, ticket.build.result(), self._protocol)

    def baseline(self, library: str) -> Outcome:
        return self._worker.baseline(library, self._protocol)

    def close(self) -> None:
        self._pool.close()
        self._worker.close()


class ReplayEvaluator:
    """Looks every point up in a recorded table; nothing is built and no device is touched."""

    backend = "replay"
    time_source = TimeSource.REPLAYED
    compiler = "recorded"

    def __init__(self, config: BackendConfig) -> None:
        if not config.path:
            raise ConfigError(
                "backend=replay needs a table", hint="add backend.path=PATH of a trials.csv or study.db"
            )
        self._table = ReplayTable(Path(config.path))
        self.target = target(config.target)
        self.identity = self._table.identity

    def prepare(self, spec: KernelSpec, dims: Mapping[str, int], seed: int) -> None:
        del seed
        self._table.select(spec.name, spec.dtype.name, dims)

    def submit(self, point: Point) -> Ticket:
        return Ticket(point, None)

    def finish(self, ticket: Ticket) -> Outcome:
        return self._table.outcome(ticket.point)

    def baseline(self, library: str) -> Outcome:
        return self._table.baseline(library)

    def close(self) -> None:
        """Nothing is held."""


def make_evaluator(config: Config, say: Callable[[str], object]) -> Evaluator:
    """The evaluator that `config.backend` names; `auto` takes a GPU where one can be used.

    `say` hears why there is none. Raises SetupError where the named backend cannot be used.
    """
    name = config.backend.name
    if name == "auto":
        missing = _why_no_gpu()
        name = "emulator" if missing else "cuda"
        if missing:
            say(f"{missing}: kernels run in the emulator, times are predicted for {config.backend.target}")
    if name == "replay":
        return ReplayEvaluator(config.backend)
    if name not in ("cuda", "emulator"):
        raise ConfigError(
            f"backend.name = {name!r} is none of auto, cuda, emulator, replay"
            + did_you_mean(name, ("auto", "cuda", "emulator", "replay"))
        )
    return LiveEvaluator(name, config.backend, config.build, config.measure)


_COUNT_GPUS = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int(0)
raise SystemExit(0 if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value else 1)
"""


def _why_no_gpu() -> str | None:
    """Why no GPU can be used, or None. Asked in a process of its own: the parent never starts CUDA."""
    try:
        asked = subprocess.run(
            [sys.executable, "-c", _COUNT_GPUS],
            capture_output=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return "the CUDA driver does not answer"
    if asked.returncode != 0:
        return "no GPU found"
    if importlib.util.find_spec("pycuda") is None:
        return "a GPU is here but PyCUDA is not (python tools/install_pycuda.py installs it)"
    return None
