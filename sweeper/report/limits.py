"""The ceilings of a device that a problem is held against: its peak rate and what a copy reaches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sweeper.device import target
from sweeper.dtypes import dtype as precision_class
from sweeper.errors import SweeperError
from sweeper.report.study import Problem, floats
from sweeper.resources.roofline import gflops, roofline_ms

__all__ = ["Ceilings", "ceilings_of"]


_EMULATED = "emulated "


@dataclass(frozen=True, slots=True)
class Ceilings:
    """`peak_gflops` in GFLOP/s and `bandwidth_gbs` in GB/s; None where the device is in no table of ours.

    `roofline_ms` is the least time that the device allows for the problem, from the same figures, or where these
    are unknown, from the table's own percentages. `source` says where the figures are from.
    """

    peak_gflops: float | None
    bandwidth_gbs: float | None
    roofline_ms: float | None
    source: str

    def roof_gflops(self, flops: float | None) -> float | None:
        """The highest rate for work of `flops`."""
        return gflops(flops, self.roofline_ms) if flops and self.roofline_ms else None


def ceilings_of(problem: Problem) -> Ceilings:
    """What bounds `problem` on its device."""
    try:
        limits, kind = target(problem.device.removeprefix(_EMULATED)), precision_class(problem.dtype)
        return Ceilings(
            limits.peak_gflops(kind.name),
            limits.bandwidth_gbs,
            _of_rows(problem) or roofline_ms(problem.flops, problem.bytes, kind, limits),
            limits.source,
        )
    except (SweeperError, KeyError):
        return Ceilings(None, None, _of_rows(problem), "the rows' own percentages")


def _of_rows(problem: Problem) -> float | None:
    """The roofline's time as the run had it, which may have been told the device's own clock."""
    for study in problem.studies:
        times, shares = floats(study.rows, "time_ms"), floats(study.rows, "percent_of_roofline")
        both = np.flatnonzero(np.isfinite(times) & np.isfinite(shares))
        if len(both):
            return float(times[both[0]] * shares[both[0]] / 100)
    return None
