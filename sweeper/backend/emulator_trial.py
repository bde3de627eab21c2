"""One configuration's launches in the emulator: run, judged, and told in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.backend.emulator_arena import Arena
from sweeper.emulation import Fault, Geometry, LaunchReport, Order
from sweeper.errors import TrialFailed
from sweeper.kernel.sizes import shape_text
from sweeper.model import Build, Check, Launch, Stage, Status

__all__ = ["EmulatedTrial"]

_STATUS = {
    Fault.TIMEOUT: (Status.TIMEOUT, Stage.LAUNCH),
    Fault.ARGUMENT: (Status.LAUNCH_ERROR, Stage.LAUNCH),
    Fault.LAUNCH: (Status.LAUNCH_ERROR, Stage.LAUNCH),
    Fault.MODULE: (Status.LAUNCH_ERROR, Stage.LOAD),
    Fault.BETWEEN_ROWS: (Status.WRONG_RESULT, Stage.VERIFY),
}
_MOST_SHOWN = 5
_PRINTED_SHOWN = 200


class EmulatedTrial:
    """Launches of one build. Each raises TrialFailed for a fault or a wrong result.

    `switches` counts the last launch's switches from thread to thread; `remarks` are what a reader of
    a passed configuration should know all the same.
    """

    def __init__(self, build: Build, workers: int) -> None:
        self._build = build
        self._workers = workers
        self._remarks: dict[str, None] = {}
        self.switches = 0

    @property
    def remarks(self) -> tuple[str, ...]:
        return tuple(self._remarks)

    def whole(self, arena: Arena, launch: Launch, deadline_s: float, *, both_orders: bool) -> Check:
        """Run every block and compare every element; with `both_orders` a second time, each block's
        threads in reverse."""
        check = self._once(arena, launch, None, Order.FORWARD, deadline_s)
        if both_orders:
            self._once(arena, launch, None, Order.REVERSE, deadline_s)
        return check

    def sample(
        self, arena: Arena, launch: Launch, blocks: npt.NDArray[np.uint64], deadline_s: float
    ) -> Check:
        """Run some blocks and compare what they wrote."""
        return self._once(arena, launch, blocks, Order.FORWARD, deadline_s)

    def _once(
        self,
        arena: Arena,
        launch: Launch,
        blocks: npt.NDArray[np.uint64] | None,
        order: Order,
        deadline_s: float,
    ) -> Check:
        where = _where(arena, order)
        arena.prepare()
        try:
            report = arena.run(
                self._build.artifact,
                self.geometry(launch),
                blocks=blocks,
                order=order,
                workers=self._workers,
                deadline_s=deadline_s,
            )
            self.switches = report.switches
            self._remember(report)
            if not report.ok:
                raise _fault(report, where)
            check = arena.check_all() if blocks is None else arena.check_written()
        finally:
            arena.reset()
        if not check.passed:
            raise _wrong_result(check, where, order, [a.name for a in arena.problem.scratch])
        return check

    def geometry(self, launch: Launch) -> Geometry:
        """The launch, with what the module really declares of shared memory."""
        static = self._build.static_shared_bytes
        return Geometry(
            launch.grid,
            launch.block,
            launch.shared_bytes,
            launch.static_shared_bytes if static is None else static,
        )

    def _remember(self, report: LaunchReport) -> None:
        for hazard in report.hazards:
            self._remarks[hazard] = None
        if report.printed and not any(r.startswith("printed") for r in self._remarks):
            lines = " | ".join(report.printed.split("\n")).strip(" |")
            self._remarks[
                f"printed: {lines[:_PRINTED_SHOWN]}{'…' if len(lines) > _PRINTED_SHOWN else ''}"
            ] = None


def _where(arena: Arena, order: Order) -> str:
    shape = f"at {shape_text(arena.problem.dims, len(arena.problem.spec.dims))}"
    return shape if order is Order.FORWARD else f"{shape}, threads of a block in reverse order"


def _fault(report: LaunchReport, where: str) -> TrialFailed:
    status, stage = _STATUS.get(report.kind or Fault.CRASH, (Status.CRASH, Stage.LAUNCH))
    details: dict[str, Any] = {"fault": str(report.kind), "where": where}
    if report.thread is not None:
        details |= {"thread": list(report.thread), "block": list(report.block or ())}
    if report.printed:
        details["printed"] = report.printed[-2000:]
    return TrialFailed(status, stage, f"{report.message} ({where})", details=details)


def _wrong_result(check: Check, where: str, order: Order, scratch: Sequence[str]) -> TrialFailed:
    reason = check.note or f"{check.wrong} of {check.checked} elements are wrong"
    shown = [
        f"{m.array}[{', '.join(map(str, m.index))}] = {_number(m.got)}, expected {_number(m.want)} ± {m.bound:.2g}"
        for m in check.mismatches[:_MOST_SHOWN]
    ]
    text = "; ".join([f"{reason} ({where})", *shown])
    if order is Order.REVERSE and scratch:
        text += (
            f"; right in the launch before: see what it left in {', '.join(scratch)}, and whether threads of a"
            " block use each other's data without a barrier"
        )
    elif order is Order.REVERSE:
        text += "; right with them in order: threads of a block use each other's data without a barrier"
    return TrialFailed(Status.WRONG_RESULT, Stage.VERIFY, text, details={"check": check, "where": where})


def _number(value: float) -> str:
    return "nan" if math.isnan(value) else f"{value:.9g}"
