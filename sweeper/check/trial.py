"""One case run and judged: an instrumented launch, and plain ones with threads and blocks in three orders."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.backend.emulator_arena import Arena
from sweeper.check.plan import Case
from sweeper.check.report import Defect, Outcome, Verdict
from sweeper.check.wording import disagreement, fault, wrong_result
from sweeper.device import Target
from sweeper.emulation import (
    Argument,
    Fault,
    FindingKind,
    Geometry,
    LaunchReport,
    Limits,
    Order,
    Scalar,
    launch,
)
from sweeper.model import Build, KernelSpec, Launch
from sweeper.problem import ResolvedArray, resolve
from sweeper.resources.geometry import launch_of

__all__ = ["CheckedArena", "Modules", "World", "run_case"]

Array = npt.NDArray[Any]

# What a wrong number or a dependence on order is no news beside.
_RACES = frozenset((FindingKind.RACE_SHARED, FindingKind.RACE_GLOBAL, Verdict.WRONG_RESULT))
_SHUFFLE_SEED = 1


@dataclass(frozen=True, slots=True)
class World:
    """What all cases of a kernel share. `run_reference` as for Arena; `deadline_s` is a launch's, and `hung` is
    set once one has taken longer."""

    spec: KernelSpec
    target: Target
    launcher: Path
    limits: Limits
    seed: int
    deadline_s: float
    allow_nondeterministic: bool = False
    run_reference: Callable[[Arena], Mapping[str, Array]] | None = None
    hung: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Modules:
    """The builds of one configuration; `checked` is None in the fast mode."""

    plain: Build
    checked: Build | None = None


class CheckedArena(Arena):
    """An arena whose launches are strict, and whose blocks take part in the order."""

    def ordered(
        self, world: World, build: Build, sizes: Launch, order: Order, *, checked: bool
    ) -> LaunchReport:
        """One launch of `build`; hazards are faults in it."""
        static = build.static_shared_bytes
        geometry = Geometry(
            sizes.grid,
            sizes.block,
            sizes.shared_bytes,
            sizes.static_shared_bytes if static is None else static,
        )
        arguments: list[Argument] = [
            self._buffers[a.name] if isinstance(a, ResolvedArray) else Scalar(a.name, a.value)
            for a in self.problem.args
        ]
        return launch(
            world.launcher,
            build.artifact,
            arguments,
            geometry,
            blocks=_block_order(geometry.blocks, order),
            order=order,
            seed=_SHUFFLE_SEED,
            strict=True,
            checked=checked,
            limits=world.limits,
            deadline_s=world.deadline_s,
        )


def _block_order(count: int, order: Order) -> npt.NDArray[np.uint64] | None:
    """Linear indices of all blocks; None for the plain order."""
    if order is Order.FORWARD:
        return None
    blocks = np.arange(count, dtype=np.uint64)
    return (
        blocks[::-1] if order is Order.REVERSE else np.random.default_rng(_SHUFFLE_SEED).permutation(blocks)
    )


def run_case(world: World, case: Case, modules: Modules) -> Outcome:
    """Run `case` and judge it.

    Raises KernelError and ConfigError for what is wrong with the description or its reference.
    """
    start = time.monotonic()
    problem = resolve(world.spec, case.dims, case.point, seed=world.seed)
    sizes = launch_of(world.spec, case.point, case.dims, world.target)
    arena = CheckedArena(problem, world.launcher, world.limits, world.run_reference)
    try:
        arena.prepare()
        trial = _Trial(world, arena, sizes)
        if modules.checked is not None:
            trial.instrumented(modules.checked)
        if not world.hung.is_set():
            trial.in_all_orders(modules.plain)
    finally:
        arena.close()
    return Outcome(case, tuple(trial.defects), trial.launches, time.monotonic() - start)


class _Trial:
    """The launches of one case, and what was found so far."""

    def __init__(self, world: World, arena: CheckedArena, sizes: Launch) -> None:
        self._world = world
        self._arena = arena
        self._sizes = sizes
        self.defects: list[Defect] = []
        self.launches = 0

    def instrumented(self, build: Build) -> None:
        """One launch that sees every access, whose numbers are compared as well."""
        report = self._launch(build, Order.FORWARD, checked=True)
        found = [Defect.of(finding) for finding in report.findings]
        self.defects += found
        if not report.ok:
            defect = fault(report)
            if defect.kind not in {d.kind for d in found}:
                self.defects.append(defect)
        elif not found:
            self._compare(Order.FORWARD)
        self._arena.reset()
        if self.defects:
            self._arena.clear_scratch()  # what a faulty launch leaves proves nothing

    def in_all_orders(self, build: Build) -> None:
        """A launch an order; the first fault or wrong result is the last launch."""
        results: list[dict[str, Array]] = []
        for order in Order:
            report = self._launch(build, order, checked=False)
            if not report.ok:
                defect = fault(report)
                if defect.kind not in {d.kind for d in self.defects}:
                    self.defects.append(defect)
                break
            right = self._compare(order)
            results.append({name: values.copy() for name, values in self._arena.outputs().items()})
            self._arena.reset()
            if not right:
                break
        self._compare_orders(results)

    def _launch(self, build: Build, order: Order, *, checked: bool) -> LaunchReport:
        self.launches += 1
        report = self._arena.ordered(self._world, build, self._sizes, order, checked=checked)
        if report.kind is Fault.TIMEOUT:
            self._world.hung.set()
        return report

    def _compare(self, order: Order) -> bool:
        """Hold the outputs against the reference."""
        check = self._arena.check_all()
        if not check.passed and Verdict.WRONG_RESULT not in {d.kind for d in self.defects}:
            self.defects.append(wrong_result(check, order))
        return check.passed

    def _compare_orders(self, results: list[dict[str, Array]]) -> None:
        known = {defect.kind for defect in self.defects}
        if self._world.allow_nondeterministic or known & _RACES:
            return
        for order, other in zip(list(Order)[1:], results[1:], strict=False):
            defect = disagreement(self._arena.problem, results[0], other, order)
            if defect is not None:
                self.defects.append(defect)
                return
