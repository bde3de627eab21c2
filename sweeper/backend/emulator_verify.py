"""Verification of configurations of one kernel at one problem, by running blocks on the CPU."""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from sweeper.backend.base import MeasureProtocol
from sweeper.backend.emulator_arena import Arena
from sweeper.backend.emulator_sample import is_small, reduced_dims, sample_blocks
from sweeper.backend.emulator_trial import EmulatedTrial
from sweeper.device import Target
from sweeper.emulation import Limits
from sweeper.errors import KernelError, TrialFailed
from sweeper.kernel.sizes import shape_text
from sweeper.model import Build, Check, KernelSpec, Launch, Point, Stage, Status
from sweeper.problem import Problem, resolve
from sweeper.resources.geometry import evaluate_launch, launch_of, point_scope

__all__ = ["Verifier"]

# Processor time that a whole grid, a sample of blocks and a reference kernel may take at the true shape.
_WHOLE_BUDGET_S = 0.6
_SAMPLE_BUDGET_S = 2.0
_REFERENCE_BUDGET_S = 20.0
_REFERENCE_DEADLINE_S = 80.0
# What emulation costs at most on a current core, in ns. A figure and not a measurement: what is run of a
# configuration must not depend on how busy the machine is.
_MULTIPLY_ADD_NS = 1.0
_THREAD_NS = 20.0
_SWITCH_NS = 8.0
# Many times what the blocks of a reduced shape take.
_REDUCED_DEADLINE_S = 10.0
_MOST_REDUCED_SHAPES = 4
_HOST_MEMORY_SHARE = 0.6


class Verifier:
    """Proves configurations of `problem`'s kernel right or wrong.

    `reference_build` gives the module of the plain kernel that computes right results, where the
    description names one.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        launcher: Path,
        *,
        workers: int,
        reference_build: Callable[[], Build],
    ) -> None:
        self.problem = problem
        self._target = target
        self._launcher = launcher
        self._workers = workers
        self._reference_build = reference_build
        self._whole: Arena | None = None
        self._reduced: OrderedDict[str, Arena] = OrderedDict()
        self._limits = Limits(
            threads=target.max_threads_per_block,
            block=target.max_block_dim,
            grid=target.max_grid_dim,
            shared_bytes=target.max_shared_bytes,
            static_shared_bytes=target.static_shared_bytes,
        )

    @property
    def _spec(self) -> KernelSpec:
        return self.problem.spec

    def verify(
        self, point: Point, launch: Launch, build: Build, protocol: MeasureProtocol
    ) -> tuple[Check, tuple[str, ...]]:
        """The check at the true shape, its note saying what was run, and remarks on the configuration.

        Raises TrialFailed with what is wrong at either shape.
        """
        trial = EmulatedTrial(build, self._workers)
        here = resolve(self._spec, self.problem.dims, point, seed=self.problem.seed)
        smaller = reduced_dims(self._spec, point, self.problem.dims, self._target)
        if smaller is None:
            check, what = self._check_true(trial, here, launch, protocol, None)
            return _noted(check, what), trial.remarks
        reduced, cost_s = self._check_reduced(trial, smaller, point, launch, protocol)
        what = f"whole grid at {shape_text(smaller, len(self._spec.dims))}"
        lacking = self._lacking() or _only_whole(here, cost_s, protocol)
        if lacking:
            return _noted(reduced, f"{what}; {lacking}"), trial.remarks
        check, also = self._check_true(trial, here, launch, protocol, cost_s)
        return _noted(check, f"{also}, {what}"), trial.remarks

    def _check_reduced(
        self,
        trial: EmulatedTrial,
        dims: Mapping[str, int],
        point: Point,
        launch: Launch,
        protocol: MeasureProtocol,
    ) -> tuple[Check, float]:
        """Every block at `dims` in two orders, and the processor time that the true shape costs."""
        arena = self._reduced_arena(dims, point)
        smaller = launch_of(self._spec, point, dims, self._target)
        deadline_s = min(_REDUCED_DEADLINE_S, protocol.deadline_s / 4)
        check = trial.whole(arena, smaller, deadline_s, both_orders=True)
        more = _multiply_adds(self.problem) / _multiply_adds(arena.problem)
        return check, _cost_s(self.problem, launch, trial.switches * more)

    def _check_true(
        self,
        trial: EmulatedTrial,
        here: Problem,
        launch: Launch,
        protocol: MeasureProtocol,
        cost_s: float | None,
    ) -> tuple[Check, str]:
        """The true shape, whole where that is affordable or nothing less will do; and what was run."""
        if self._whole is None:
            if self.problem.total_bytes > _free_memory():
                raise TrialFailed(Status.OUT_OF_MEMORY, Stage.LOAD, _too_large(self.problem))
            self._whole = self._arena(here)
        else:
            self._whole.at(here)
        shape, deadline_s = _shape(self.problem), protocol.deadline_s / 2
        small = is_small({name: self.problem.dims[name] for name in self._spec.dims})
        together = _work_together(here)
        if protocol.emulated_blocks <= 0 or small or together:
            check = trial.whole(self._whole, launch, deadline_s, both_orders=small or together)
            return check, f"whole grid at {shape}"
        if cost_s is None:
            trial.sample(self._whole, launch, sample_blocks(launch.grid, 1, self.problem.seed), deadline_s)
            cost_s = _cost_s(self.problem, launch, trial.switches * launch.blocks)
        if cost_s <= _WHOLE_BUDGET_S:
            return trial.whole(self._whole, launch, deadline_s, both_orders=False), f"whole grid at {shape}"
        affordable = int(_SAMPLE_BUDGET_S / cost_s * launch.blocks)
        count = max(1, min(protocol.emulated_blocks, affordable))
        blocks = sample_blocks(launch.grid, count, self.problem.seed)
        check = trial.sample(self._whole, launch, blocks, deadline_s)
        return check, f"{blocks.size} of {launch.blocks} blocks at {shape}"

    def _lacking(self) -> str:
        """Why the true shape cannot be verified too; empty where it can."""
        if self._whole is not None:
            return ""
        if self.problem.total_bytes > _free_memory():
            return _too_large(self.problem)
        if (
            self._by_kernel
            and _cost_s(self.problem, self._reference_launch(self.problem), 0) > _REFERENCE_BUDGET_S
        ):
            return f"not at {_shape(self.problem)}: the reference kernel takes too long there"
        return ""

    @property
    def _by_kernel(self) -> bool:
        return self._spec.reference.kind == "kernel"

    def _reduced_arena(self, dims: Mapping[str, int], point: Point) -> Arena:
        """The arena at `dims`; the most recently used ones are kept."""
        key = shape_text(dims)
        here = resolve(self._spec, dims, point, seed=self.problem.seed)
        arena = self._reduced.pop(key, None)
        if arena is None:
            arena = self._arena(here)
        else:
            arena.at(here)
        self._reduced[key] = arena
        while len(self._reduced) > _MOST_REDUCED_SHAPES:
            self._reduced.popitem(last=False)[1].close()
        return arena

    def _arena(self, problem: Problem) -> Arena:
        return Arena(problem, self._launcher, self._limits, self._run_reference if self._by_kernel else None)

    def _reference_launch(self, problem: Problem) -> Launch:
        geometry, name = self._spec.reference.launch, self._spec.reference.text
        if geometry is None:
            raise KernelError(f"kernel {self._spec.name}: its reference kernel {name} has no launch")
        scope = point_scope(self._spec, self._spec.default_point, problem.dims, self._target)
        return evaluate_launch(geometry, scope, where=f"{self._spec.name}, reference {name}")

    def _run_reference(self, arena: Arena) -> dict[str, npt.NDArray[Any]]:
        """The outputs of the plain kernel that the description names."""
        launch, build = self._reference_launch(arena.problem), self._reference_build()
        geometry = EmulatedTrial(build, self._workers).geometry(launch)
        report = arena.run(build.artifact, geometry, workers=self._workers, deadline_s=_REFERENCE_DEADLINE_S)
        results = {name: values.copy() for name, values in arena.outputs().items()}
        arena.reset()
        if not report.ok:
            raise KernelError(
                f"kernel {self._spec.name}: its reference {self._spec.reference.text} failed: {report.message}",
                hint="the reference itself must run without fault at every shape",
            )
        return results

    def close(self) -> None:
        """Release all memory."""
        for arena in (*self._reduced.values(), *([self._whole] if self._whole else [])):
            arena.close()
        self._reduced.clear()
        self._whole = None


def _noted(check: Check, note: str) -> Check:
    return replace(check, note=f"{check.note}; {note}" if check.note else note)


def _work_together(problem: Problem) -> bool:
    """Whether blocks may need what others leave in scratch: some of them alone would prove nothing."""
    return any(array.size for array in problem.scratch)


def _only_whole(problem: Problem, cost_s: float, protocol: MeasureProtocol) -> str:
    """Why a sample of blocks is not run where the whole grid costs too much; empty where it can be."""
    if not _work_together(problem) or cost_s <= _WHOLE_BUDGET_S or protocol.emulated_blocks <= 0:
        return ""
    names = ", ".join(array.name for array in problem.scratch)
    return f"not at {_shape(problem)}: blocks work together through {names}, and all of them take too long"


def _shape(problem: Problem) -> str:
    return shape_text(problem.dims, len(problem.spec.dims))


def _multiply_adds(problem: Problem) -> float:
    """Half the FLOPs; where nobody knows them, one for each point of the index space."""
    return (
        problem.flops / 2
        if problem.flops
        else float(math.prod(problem.dims[name] for name in problem.spec.dims))
    )


def _cost_s(problem: Problem, launch: Launch, switches: float) -> float:
    """Processor time of the whole grid, with `switches` from thread to thread, in seconds."""
    threads = float(launch.threads * launch.blocks)
    return 1e-9 * (_multiply_adds(problem) * _MULTIPLY_ADD_NS + threads * _THREAD_NS + switches * _SWITCH_NS)


def _too_large(problem: Problem) -> str:
    shape = _shape(problem)
    return (
        f"not at {shape}: its arrays take {problem.total_bytes / 1e9:.1f} GB, more than this machine has free"
    )


def _free_memory() -> float:
    """Bytes that may be taken; the rest is for masks and references."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024 * _HOST_MEMORY_SHARE
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * _HOST_MEMORY_SHARE
