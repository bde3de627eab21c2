"""Points built in a pool and measured in the processes that own the devices, both ahead of whoever waits."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sweeper.backend.base import Finalist, Outcome, Rounds, Turns
from sweeper.build.make import make_builder
from sweeper.build.pool import Builder, BuildPool
from sweeper.build.source import translation_unit
from sweeper.config import BuildConfig, Config
from sweeper.device import DeviceIdentity, Target
from sweeper.device.clocks import ClockLock
from sweeper.errors import SetupError, TrialFailed
from sweeper.model import Build, KernelSpec, Point, Stage, Status, TimeSource
from sweeper.resources.geometry import launch_of, why_not_launchable
from sweeper.worker.base import Worker
from sweeper.worker.finals import FinalsTicket
from sweeper.worker.group import DeviceGroup
from sweeper.worker.kinds import common_identity, common_target
from sweeper.worker.lane import Problem
from sweeper.worker.pool import DeviceWorker
from sweeper.worker.ticket import Ticket

if TYPE_CHECKING:
    from sweeper.cluster.engine import RayEngine
    from sweeper.cluster.worker import ActorSettings

__all__ = ["LiveEvaluator", "why_pruned"]


class LiveEvaluator:
    """Builds in a pool of compilers and runs in worker processes, on GPUs or in the emulator.

    Every device serves the one search; `devices` holds their indices. `problem` (kernel, sizes, seed) is one
    to `prepare` at once, while the compiler is still looked for. With an `engine` devices and builds are those of its
    cluster, which is left at the end. Raises SetupError where a device or the
    compiler cannot be used, and for GPUs of different kinds unless the configuration allows them: times of
    different products do not compare.
    """

    def __init__(
        self,
        backend: str,
        config: Config,
        say: Callable[[str], object] = lambda _: None,
        *,
        devices: Sequence[int] = (0,),
        problem: Problem | None = None,
        engine: RayEngine | None = None,
    ) -> None:
        self.backend = backend
        self.time_source = TimeSource.MEASURED if backend == "cuda" else TimeSource.PREDICTED
        build = config.build
        workers = engine.slots if engine else build.workers or len(os.sched_getaffinity(0))
        self.capacity = 2 * workers + (engine.count if engine else len(devices))
        self._engine = engine
        self._problem: tuple[KernelSpec, Mapping[str, int]] | None = None
        with ThreadPoolExecutor(1, thread_name_prefix="finding") as thread, contextlib.ExitStack() as undo:
            if engine is not None:
                undo.callback(engine.close)
            finding = thread.submit(_find_builder, backend, build, workers, engine)
            undo.callback(_close_found, finding)
            # Devices are opened by the calling thread, which an interrupt reaches.
            self._group = _open_devices(backend, config, devices, say, engine)
            undo.callback(self._group.close)
            self.devices: Sequence[DeviceIdentity] = self._group.identities
            self.target = common_target(self._group.targets, self.devices, mixed=config.backend.mixed_devices)
            self.identity = common_identity(self.devices)
            # On nodes of a cluster their own workers hold them.
            self._clocks = None if engine else _held_clocks(backend, config, self.devices)
            if self._clocks is not None:
                undo.callback(self._clocks.close)
            if problem is not None:
                self.prepare(*problem)
            builder = finding.result()
            arch = self.target.arch if backend == "cuda" else "host"
            builder.check(arch)
            self.compiler = builder.identity()
            undo.pop_all()
        self._pool = BuildPool(builder, workers=workers, arch=arch, deadline_s=build.deadline_s)

    def prepare(self, spec: KernelSpec, dims: Mapping[str, int], seed: int) -> None:
        self._problem = spec, dims
        self._group.prepare(spec, dims, seed)

    def ready(self) -> None:
        self._group.ready()

    @property
    def spare_builders(self) -> int:
        # In the emulator builds would take the processors from what runs.
        return self._pool.spare if self.time_source is TimeSource.MEASURED else 0

    def build_ahead(self, points: Sequence[Point], spec: KernelSpec | None = None) -> None:
        """Begin to build `points` of the prepared problem, or of `spec` at one that is yet to be prepared."""
        if spec is None:
            if self._problem is None:
                raise AssertionError("prepare comes first")
            spec, _ = self._problem
        for point in points:
            self._pool.build_ahead(translation_unit(spec, point))

    def submit(self, point: Point) -> Ticket:
        if self._problem is None:
            raise AssertionError("prepare comes first")
        spec, dims = self._problem
        ticket = Ticket(point, self._pool.submit(translation_unit(spec, point)))
        self._group.submit(ticket, lambda build: _require_fit(spec, point, dims, self.target, build))
        return ticket

    def baseline(self, library: str) -> Ticket:
        ticket = Ticket(None, library=library)
        self._group.submit(ticket)
        return ticket

    def seen(self, time_ms: float) -> None:
        self._group.seen(time_ms)

    def finish(self, ticket: Ticket) -> Outcome:
        return ticket.outcome.result()

    def finalists(self, points: Sequence[Point]) -> list[Finalist | TrialFailed]:
        if self._problem is None:
            raise AssertionError("prepare comes first")
        spec, dims = self._problem
        builds = [self._pool.submit(translation_unit(spec, point)) for point in points]
        built: list[Finalist | TrialFailed] = []
        for point, future in zip(points, builds, strict=True):
            try:
                build = future.result()
                _require_fit(spec, point, dims, self.target, build)
                built.append(Finalist(point, build))
            except TrialFailed as failure:
                built.append(failure)
        return built

    def confirm(
        self, finalists: Sequence[Finalist], rounds: Rounds
    ) -> tuple[tuple[Turns, ...], DeviceIdentity] | None:
        if self.time_source is not TimeSource.MEASURED:
            return None
        ticket = FinalsTicket(finalists, rounds)
        self._group.confirm(ticket)
        return ticket.turns.result(), ticket.device or self.identity

    def seconds(self) -> dict[str, Any]:
        return {
            "device_busy": self._group.busy_s(),
            "waiting_for_builds": self._group.starved_s(),
            "phases": dict(self._group.phases_s),
        }

    def close(self) -> None:
        try:
            self._pool.close()
        finally:
            try:
                self._group.close()
            finally:
                try:
                    if self._clocks is not None:
                        self._clocks.close()
                finally:
                    if self._engine is not None:
                        self._engine.close()


def why_pruned(
    spec: KernelSpec, point: Point, dims: Mapping[str, int], limits: Target, build: Build
) -> str | None:
    """Why `build` need not be tried on a device: a limit that its own figures break, or spills that the
    description forbids; None where it may run."""
    launch = launch_of(spec, point, dims, limits)
    if build.static_shared_bytes is not None:
        launch = replace(launch, static_shared_bytes=build.static_shared_bytes)
    why = why_not_launchable(launch, limits, build.registers)
    if why is None and spec.forbid_spills and (build.spill_bytes or build.local_bytes):
        spilled, local = build.spill_bytes or 0, build.local_bytes or 0
        return f"spills {spilled} B and {local} B of local memory a thread, with forbid_spills"
    return why


def _require_fit(
    spec: KernelSpec, point: Point, dims: Mapping[str, int], limits: Target, build: Build
) -> None:
    why = why_pruned(spec, point, dims, limits, build)
    if why is not None:
        raise TrialFailed(Status.INFEASIBLE, Stage.BUILD, why)


def _find_builder(backend: str, build: BuildConfig, workers: int, engine: RayEngine | None) -> Builder:
    make = make_builder if engine is None else engine.builder
    builder = make(backend, build.compiler, cache=build.cache)
    builder.warm(workers)
    return builder


def _open_devices(
    backend: str,
    config: Config,
    devices: Sequence[int],
    say: Callable[[str], object],
    engine: RayEngine | None,
) -> DeviceGroup:
    workers = (
        _workers(backend, config, devices) if engine is None else engine.workers(_actors(backend, config))
    )
    return DeviceGroup(workers, config.measure, stop_factor=config.measure.stops_at, say=say)


def _actors(backend: str, config: Config) -> ActorSettings:
    from sweeper.cluster.worker import ActorSettings

    return ActorSettings(
        backend,
        config.backend.target,
        lock_clocks=config.measure.lock_clocks,
        mixed=config.backend.mixed_devices,
    )


def _workers(backend: str, config: Config, devices: Sequence[int]) -> list[Worker]:
    if not devices:
        raise SetupError("no GPU found", hint="check CUDA_VISIBLE_DEVICES and nvidia-smi")
    return [
        DeviceWorker(
            backend,
            device=index,
            target=config.backend.target,
            allow_shared=config.backend.allow_shared,
        )
        for index in devices
    ]


def _held_clocks(backend: str, config: Config, devices: Sequence[DeviceIdentity]) -> ClockLock | None:
    """The clocks of `devices` held as the configuration asks for, which is not at all unless it says so."""
    clock = config.measure.lock_clocks
    if clock is None or backend != "cuda":
        return None
    lock = ClockLock(clock, [device.pci_bus_id for device in devices])
    lock.start()
    return lock


def _close_found(finding: Future[Builder]) -> None:
    """Close the builder, where one was found."""
    if finding.exception() is None:
        finding.result().close()
