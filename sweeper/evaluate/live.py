"""Points built in a pool and measured in the processes that own the devices, both ahead of whoever waits."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from sweeper.backend.base import Outcome
from sweeper.build.make import make_builder
from sweeper.build.pool import Builder, BuildPool
from sweeper.build.source import translation_unit
from sweeper.config import BuildConfig, Config
from sweeper.device import DeviceIdentity, Target
from sweeper.errors import SetupError, TrialFailed
from sweeper.model import Build, KernelSpec, Point, Stage, Status, TimeSource
from sweeper.resources.geometry import launch_of, why_not_launchable
from sweeper.worker.group import DeviceGroup
from sweeper.worker.kinds import common_identity, common_target
from sweeper.worker.pool import DeviceWorker
from sweeper.worker.ticket import Ticket

__all__ = ["LiveEvaluator", "why_pruned"]


class LiveEvaluator:
    """Builds in a pool of compilers and runs in worker processes, on GPUs or in the emulator.

    Every device serves the one search. `devices` holds their indices; `meanwhile` is called once while they
    are being opened. Raises SetupError where a device or the compiler cannot be used, and for GPUs of
    different kinds unless the configuration allows them: times of different products do not compare.
    """

    def __init__(
        self,
        backend: str,
        config: Config,
        say: Callable[[str], object] = lambda _: None,
        *,
        devices: Sequence[int] = (0,),
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        self.backend = backend
        self.time_source = TimeSource.MEASURED if backend == "cuda" else TimeSource.PREDICTED
        build = config.build
        workers = build.workers or os.cpu_count() or 1
        # Opened by the calling thread, which an interrupt reaches.
        with ThreadPoolExecutor(2, thread_name_prefix="opening") as threads:
            finding = threads.submit(_find_builder, backend, build, workers)
            preparing = threads.submit(meanwhile)
            self._group, builder = _both(lambda: _open_devices(backend, config, devices, say), finding)
            preparing.result()
        try:
            self.devices: Sequence[DeviceIdentity] = self._group.identities
            self.target = common_target(self._group.targets, self.devices, mixed=config.backend.mixed_devices)
            self.identity = common_identity(self.devices)
            arch = self.target.arch if backend == "cuda" else "host"
            builder.check(arch)
            self.compiler = builder.identity()
        except BaseException:
            builder.close()
            self._group.close()
            raise
        self.capacity = 2 * workers + len(self.devices)
        self._pool = BuildPool(builder, workers=workers, arch=arch, deadline_s=build.deadline_s)
        self._problem: tuple[KernelSpec, Mapping[str, int]] | None = None

    def prepare(self, spec: KernelSpec, dims: Mapping[str, int], seed: int) -> None:
        self._problem = spec, dims
        self._group.prepare(spec, dims, seed)

    def ready(self) -> None:
        self._group.ready()

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
            self._group.close()


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


def _find_builder(backend: str, build: BuildConfig, workers: int) -> Builder:
    builder = make_builder(backend, build.compiler, cache=build.cache)
    builder.warm(workers)
    return builder


def _open_devices(
    backend: str, config: Config, devices: Sequence[int], say: Callable[[str], object]
) -> DeviceGroup:
    if not devices:
        raise SetupError("no GPU found", hint="check CUDA_VISIBLE_DEVICES and nvidia-smi")
    workers = [
        DeviceWorker(
            backend,
            device=index,
            target=config.backend.target,
            allow_shared=config.backend.allow_shared,
        )
        for index in devices
    ]
    return DeviceGroup(workers, config.measure, stop_factor=config.measure.stop_factor, say=say)


def _both(open_devices: Callable[[], DeviceGroup], finding: Future[Builder]) -> tuple[DeviceGroup, Builder]:
    """The devices and the builder; where one cannot be had, the other is closed."""
    try:
        group = open_devices()
    except BaseException:
        if finding.exception() is None:
            finding.result().close()
        raise
    try:
        return group, finding.result()
    except BaseException:
        group.close()
        raise
