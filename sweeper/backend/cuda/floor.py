"""The least time that says anything: what an empty kernel takes, measured in the same way."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from sweeper.backend.cuda.plan import INTERVAL_MS, Plan, Planner
from sweeper.backend.cuda.sampler import Sampler
from sweeper.errors import TrialFailed
from sweeper.model import Stage, Status

__all__ = ["Floors"]

# A kernel must take this many times as long as an empty one for its time to say anything.
_FACTOR = 1.1
_SAMPLES = 5


class Floors:
    """An empty kernel's time for each way of timing, measured once."""

    def __init__(self, planner: Planner, sampler: Sampler) -> None:
        self._planner = planner
        self._sampler = sampler
        self._known: dict[tuple[bool, int], float] = {}

    def require_above(self, samples: Sequence[float], plan: Plan) -> None:
        """Raise TrialFailed (unstable) where samples in milliseconds cannot be told from an empty kernel's."""
        middle = statistics.median_high(samples)
        if middle >= INTERVAL_MS:
            return
        floor = self._floor(plan)
        if middle <= _FACTOR * floor:
            raise TrialFailed(
                Status.UNSTABLE,
                Stage.MEASURE,
                f"{middle * 1e3:.2f} µs a launch is no more than an empty kernel's {floor * 1e3:.2f} µs",
                details={"floor_ms": floor, "time_ms": middle},
            )

    def _floor(self, plan: Plan) -> float:
        """Milliseconds a launch of an empty kernel."""
        key = plan.graph is not None, plan.launches
        if key not in self._known:
            with self._planner.empty(plan) as empty:
                taken = (self._sampler.take(empty.queue, empty.ready, flushes=True) for _ in range(_SAMPLES))
                self._known[key] = min(sample.elapsed_ms for sample in taken) / plan.launches
        return self._known[key]
