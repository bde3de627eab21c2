"""Running a plan: builds and launches side by side, each of them a process of its own."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from sweeper.backend.emulator_arena import Arena
from sweeper.build.cache import BuildCache
from sweeper.build.host import HostBuilder
from sweeper.build.pool import BuildPool
from sweeper.build.source import TranslationUnit, translation_unit
from sweeper.check.plan import Case, Plan
from sweeper.check.report import Defect, Outcome, Report, Verdict
from sweeper.check.trial import Modules, World, run_case
from sweeper.device import Target
from sweeper.emulation import Geometry, Limits, find_compiler, launcher_path
from sweeper.errors import KernelError, TrialFailed
from sweeper.model import Build, KernelSpec, Point, Status
from sweeper.resources.geometry import evaluate_launch, point_scope

__all__ = ["MODES", "Settings", "run_plan"]

MODES = ("check", "fast")

# What a build advises for a kernel that uses what only a GPU has.
_NOT_EMULABLE = "#ifdef __SWEEPER_EMULATOR__"


@dataclass(frozen=True, slots=True)
class Settings:
    """How a plan is run.

    `mode` is `check` (instrumented) or `fast`; `workers` cases and as many builds run at a time (0: one a
    processor). `launch_deadline_s` and `build_deadline_s` bound one launch and one build.
    """

    mode: str = "check"
    workers: int = 0
    seed: int = 42
    launch_deadline_s: float = 20.0
    build_deadline_s: float = 120.0
    cache: bool = True
    allow_nondeterministic: bool = False

    @property
    def parallel(self) -> int:
        return self.workers or len(os.sched_getaffinity(0))


def run_plan(
    plan: Plan, target: Target, settings: Settings, finished: Callable[[Outcome], object] = lambda _: None
) -> Report:
    """Run every case of `plan`; `finished` hears of each outcome, in the plan's order.

    Raises SetupError where there is no compiler, KernelError where the reference cannot be computed.
    """
    start = time.monotonic()
    compiler = find_compiler()
    launcher = launcher_path(compiler)
    with tempfile.TemporaryDirectory(prefix="sweeper-check-") as folder:
        cache = BuildCache() if settings.cache else BuildCache(Path(folder))
        with closing(_Builds(plan.spec, target, cache, settings)) as builds:
            world = World(
                plan.spec,
                target,
                launcher,
                _limits(target),
                settings.seed,
                settings.launch_deadline_s,
                settings.allow_nondeterministic,
                builds.reference if plan.spec.reference.kind == "kernel" else None,
            )
            outcomes = _run_cases(plan, world, builds, settings, finished)
    return Report(plan, settings.mode, outcomes, time.monotonic() - start, compiler.identity)


def _run_cases(
    plan: Plan, world: World, builds: _Builds, settings: Settings, finished: Callable[[Outcome], object]
) -> tuple[Outcome, ...]:
    for point in plan.configurations:
        builds.submit(point)
    threads = ThreadPoolExecutor(settings.parallel, thread_name_prefix="check")
    try:
        running = [threads.submit(_outcome, world, case, builds) for case in plan.cases]
        outcomes = []
        for future in running:
            outcomes.append(future.result())
            finished(outcomes[-1])
        return tuple(outcomes)
    except BaseException:
        builds.close()  # nobody waits for compilers any more
        raise
    finally:
        threads.shutdown(wait=True, cancel_futures=True)


def _outcome(world: World, case: Case, builds: _Builds) -> Outcome:
    if world.hung.is_set():
        return Outcome(case, skipped="an earlier launch did not end")
    try:
        modules = builds.modules(case.point)
    except TrialFailed as failure:
        if _NOT_EMULABLE in failure.reason:
            return Outcome(case, skipped=failure.reason)
        kind = Verdict.TIMEOUT if failure.status is Status.BUILD_TIMEOUT else Verdict.BUILD_ERROR
        return Outcome(case, (Defect(kind, failure.reason),))
    return run_case(world, case, modules)


class _Builds:
    """The modules of every configuration, and of the reference kernel where there is one."""

    def __init__(self, spec: KernelSpec, target: Target, cache: BuildCache, settings: Settings) -> None:
        self._spec = spec
        self._target = target
        self._deadline_s = settings.launch_deadline_s
        # Half of the workers each: both kinds of builds are under way at the same time.
        each = settings.parallel if settings.mode == "fast" else -(-settings.parallel // 2)
        builders = [HostBuilder(cache)]
        if settings.mode == "check":
            builders.append(HostBuilder(cache, checked=True))
        self._pools = [
            BuildPool(b, workers=each, arch=target.arch, deadline_s=settings.build_deadline_s)
            for b in builders
        ]
        self._futures: dict[Point, list[Future[Build]]] = {}
        self._reference = (
            self._pools[0].submit(_reference_unit(spec)) if spec.reference.kind == "kernel" else None
        )

    def submit(self, point: Point) -> None:
        unit = translation_unit(self._spec, point)
        self._futures[point] = [pool.submit(unit) for pool in self._pools]

    def modules(self, point: Point) -> Modules:
        """Waits for the builds of `point`. Raises TrialFailed."""
        return Modules(*(future.result() for future in self._futures[point]))

    def reference(self, arena: Arena) -> Mapping[str, npt.NDArray[Any]]:
        """The outputs of the plain kernel that the description names, run on the arrays of `arena`."""
        spec = self._spec
        if self._reference is None or spec.reference.launch is None:
            raise KernelError(f"kernel {spec.name}: its reference {spec.reference.text} has no launch")
        build = self._reference.result()
        scope = point_scope(spec, spec.default_point, arena.problem.dims, self._target)
        sizes = evaluate_launch(spec.reference.launch, scope, where=f"{spec.name}, reference")
        geometry = Geometry(sizes.grid, sizes.block, sizes.shared_bytes, build.static_shared_bytes or 0)
        report = arena.run(build.artifact, geometry, deadline_s=self._deadline_s)
        results = {name: values.copy() for name, values in arena.outputs().items()}
        arena.reset()
        if not report.ok:
            raise KernelError(
                f"kernel {spec.name}: its reference {spec.reference.text} failed: {report.message}",
                hint="the reference itself must run without fault at every shape",
            )
        return results

    def close(self) -> None:
        for pool in self._pools:
            pool.close()


def _reference_unit(spec: KernelSpec) -> TranslationUnit:
    unit = translation_unit(spec, spec.default_point)
    name = spec.reference.text
    return replace(unit, entry=name, template_args=(), signature=name, digest=f"{unit.digest}:{name}")


def _limits(target: Target) -> Limits:
    return Limits(
        threads=target.max_threads_per_block,
        block=target.max_block_dim,
        grid=target.max_grid_dim,
        shared_bytes=target.max_shared_bytes,
        static_shared_bytes=target.static_shared_bytes,
    )
