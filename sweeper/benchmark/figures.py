"""What many searches of one space come to: medians, percentiles, and a score against random search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sweeper.benchmark.recorded_space import RecordedSpace
from sweeper.benchmark.replayed import Replayed

__all__ = ["Curves", "expected_random", "score", "summarise"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curves:
    """Over the seeds of one strategy on one space: percent of the best speed after each evaluation.

    `seconds` is the mean time spent until then. A search that ended early stays at what it had found.
    """

    space: str
    strategy: str
    runs: Floats
    seconds: Floats
    score: float

    @property
    def median(self) -> Floats:
        return np.asarray(np.median(self.runs, axis=0))

    def percentile(self, percent: float) -> Floats:
        return np.asarray(np.percentile(self.runs, percent, axis=0))


def summarise(recorded: RecordedSpace, strategy: str, found: Sequence[Replayed], evaluations: int) -> Curves:
    """The curves of all runs of one strategy on one space."""
    evaluations = min(evaluations, len(recorded.space))
    runs = np.array([_extended(one.percent, evaluations) for one in found])
    seconds = np.array([_extended(one.seconds, evaluations) for one in found]).mean(axis=0)
    return Curves(recorded.name, strategy, runs, seconds, score(recorded, runs))


def score(recorded: RecordedSpace, runs: Floats) -> float:
    """How much of what random search leaves to be gained a strategy gains, mean over all evaluations and runs.

    1 for one that begins with the optimum, 0 for random search, below 0 for a worse one. Gains are differences of
    the time of the best so far, against its expectation in random search; evaluations at which that has all but
    reached the optimum do not count.
    """
    times = 100 * recorded.best_ms / np.maximum(runs, 1e-9)
    slowest = float(np.nanmax(recorded.times_ms))
    times = np.minimum(times, slowest)
    baseline = expected_random(recorded, runs.shape[1])
    room = baseline - recorded.best_ms
    counted = room > 1e-3 * recorded.best_ms
    if not counted.any():
        return 0.0
    gained = (baseline - times.mean(axis=0))[counted] / room[counted]
    return float(gained.mean())


def expected_random(recorded: RecordedSpace, evaluations: int) -> Floats:
    """The expected time in ms of the best of n configurations drawn without replacement, n = 1 to `evaluations`.

    In closed form: the k-th fastest of N is the best of n with probability C(N-k, n-1) / C(N, n). A failed
    configuration counts as the slowest.
    """
    times = np.sort(np.nan_to_num(recorded.times_ms, nan=float(np.nanmax(recorded.times_ms))))
    size = len(times)
    expected = np.empty(evaluations)
    # P(best is slower than the k fastest): none of them among n; multiplied up over n.
    none_of = np.ones(size)
    later = size - np.arange(1, size + 1)
    for n in range(evaluations):
        none_of = none_of * np.maximum(later - n, 0) / max(size - n, 1)
        at_least = np.concatenate([[1.0], none_of[:-1]])
        expected[n] = float(((at_least - none_of) * times).sum())
    return expected


def _extended(values: Floats, count: int) -> Floats:
    if len(values) >= count:
        return values[:count]
    last = values[-1] if len(values) else 0.0
    return np.concatenate([values, np.full(count - len(values), last)])
