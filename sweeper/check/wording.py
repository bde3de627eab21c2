"""Faults and wrong results as defects, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.check.report import Defect, Verdict
from sweeper.emulation import Fault, FindingKind, LaunchReport, Order
from sweeper.model import Check
from sweeper.problem import Problem

__all__ = ["disagreement", "fault", "wrong_result"]

Array = npt.NDArray[Any]

_KIND_OF_FAULT: Mapping[Fault, str] = {
    Fault.ILLEGAL_ADDRESS: FindingKind.OUT_OF_BOUNDS,
    Fault.OVERRUN: FindingKind.OUT_OF_BOUNDS,
    Fault.BETWEEN_ROWS: FindingKind.OUT_OF_BOUNDS,
    Fault.MISALIGNED_ADDRESS: FindingKind.MISALIGNED,
    Fault.ARITHMETIC: FindingKind.OVERFLOW,
    Fault.ILLEGAL_INSTRUCTION: FindingKind.TRAP,
    Fault.TRAP: FindingKind.TRAP,
    Fault.ASSERTION: FindingKind.ASSERT,
    Fault.DEADLOCK: FindingKind.DEADLOCK,
    Fault.WARP: FindingKind.WARP_MASK,
    Fault.BARRIER: FindingKind.BARRIER_DIVERGENCE,
    Fault.LAUNCH: FindingKind.LAUNCH,
    Fault.LOCAL_MEMORY: Verdict.LOCAL_MEMORY,
    Fault.TIMEOUT: Verdict.TIMEOUT,
    Fault.ARGUMENT: Verdict.ARGUMENT,
}
_ORDER_SAID = {
    Order.FORWARD: "in order",
    Order.REVERSE: "in reverse order",
    Order.SHUFFLED: "in shuffled order",
}


def fault(report: LaunchReport) -> Defect:
    """What a launch that failed is called among the defects."""
    found = report.kind or Fault.CRASH
    kind = _KIND_OF_FAULT.get(found, Verdict.CRASH)
    if found is Fault.ILLEGAL_ADDRESS and "read-only input" in report.message:
        kind = FindingKind.READ_ONLY
    if found is Fault.BARRIER and "exited" in report.message:
        kind = FindingKind.BARRIER_AFTER_EXIT
    return Defect(str(kind), report.message)


def wrong_result(check: Check, order: Order) -> Defect:
    """What a check that was not passed found, with the first element."""
    text = check.note or f"{check.wrong} of {check.checked} elements are wrong"
    if check.mismatches:
        m = check.mismatches[0]
        where = ", ".join(map(str, m.index))
        text += f"; {m.array}[{where}] = {m.got:.9g}, expected {m.want:.9g} ± {m.bound:.2g}"
    if order is not Order.FORWARD:
        text += f", with threads and blocks {_ORDER_SAID[order]}; right with them in order"
    return Defect(Verdict.WRONG_RESULT, text)


def disagreement(
    problem: Problem, one: Mapping[str, Array], other: Mapping[str, Array], order: Order
) -> Defect | None:
    """The first element whose bits in `other`, computed in `order`, are not those in `one`, computed in order."""
    for array in problem.outputs:
        a, b = one[array.name], other[array.name]
        bits = f"u{a.dtype.itemsize}"
        differs = np.flatnonzero(a.view(bits).reshape(-1) != b.view(bits).reshape(-1))
        if differs.size:
            at = int(differs[0])
            where = ", ".join(str(i) for i in np.unravel_index(at, array.shape))
            got, instead = (float(values.reshape(-1)[at]) for values in (a, b))
            return Defect(
                Verdict.NON_DETERMINISTIC,
                f"{array.name}[{where}] is {got:.9g} with threads and blocks in order and {instead:.9g}"
                f" with them {_ORDER_SAID[order]} ({differs.size} of {array.size} elements); each is within its bound",
            )
    return None
