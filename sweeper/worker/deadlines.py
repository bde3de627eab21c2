"""How long a worker may take before it counts as hanging."""

from __future__ import annotations

from dataclasses import dataclass

from sweeper.backend.base import MeasureProtocol
from sweeper.problem import Problem

__all__ = ["Deadlines"]

# A library's row takes the energy of three of its ways to compute the problem.
_METERED = 3


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that a worker may take; a device's own work is bounded by the protocol's deadline.

    `host_bytes_per_s` and `host_flops_per_s` are what the slowest host manages at comparing arrays and
    at float64 references; the time they give is added.
    """

    open_s: float = 60.0
    prepare_s: float = 120.0
    slack_s: float = 5.0
    backoff_s: float = 0.2
    host_bytes_per_s: float = 5e7
    host_flops_per_s: float = 1e9

    def prepare(self, problem: Problem) -> float:
        work = (problem.flops or 0) / self.host_flops_per_s
        return self.prepare_s + work + problem.total_bytes / self.host_bytes_per_s

    def measure(self, problem: Problem | None, protocol: MeasureProtocol) -> float:
        nbytes = problem.total_bytes if problem else 0
        metering_s = 0.0 if protocol.objective == "time" else _METERED * protocol.energy_seconds
        return protocol.deadline_s + metering_s + self.slack_s + nbytes / self.host_bytes_per_s
