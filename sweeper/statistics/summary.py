"""Noise, when to stop sampling, and what may be claimed of two kernels. Pure functions on samples.

Nothing here assumes a normal distribution: run times are skewed, quantised by the clock and now and then
far out. Medians carry binomial order-statistic intervals; two kernels are compared on interleaved blocks
by the signed-rank interval of their log ratio, which is exact whenever swapping the two names could not
be noticed. Samples that chose a configuration must not be the ones that judge it: the best of many is
the luckiest, so finalists are measured afresh.

The parts are in `intervals`, `comparison` and `noise`, whose public names are also here.
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass, field

from sweeper.statistics.comparison import RatioInterval, Verdict, paired_log_ratio, ties, verdict
from sweeper.statistics.intervals import Interval, Summary, median_interval, sorted_interval, summary
from sweeper.statistics.noise import Drift, at_clock, drift, outliers

__all__ = [
    "Drift",
    "Interval",
    "RatioInterval",
    "StoppingRule",
    "Summary",
    "Verdict",
    "at_clock",
    "drift",
    "median_interval",
    "outliers",
    "paired_log_ratio",
    "summary",
    "ties",
    "verdict",
]


@dataclass(slots=True)
class StoppingRule:
    """Decides after each sample whether to take another.

        rule = StoppingRule(min_samples=10, max_samples=100, max_seconds=1.0, relative_width=0.01)
        while not rule.stop(elapsed_s):
            rule.add(measure())

    Stops once the median's interval is no wider than `relative_width` of the median, at `max_samples`,
    or after `max_seconds`; never before `min_samples`, of which at least one. `reason` says which.
    Looking after every sample makes the last interval a little optimistic: good for ranking, not for
    claims.
    """

    min_samples: int = 10
    max_samples: int = 100
    max_seconds: float = 1.0
    relative_width: float = 0.01
    confidence: float = 0.95
    reason: str = field(default="", init=False)
    _ordered: list[float] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.min_samples <= self.max_samples:
            raise ValueError(
                f"need 1 <= min_samples <= max_samples, got {self.min_samples} and {self.max_samples}"
            )

    @property
    def count(self) -> int:
        return len(self._ordered)

    @property
    def relative_interval(self) -> float:
        """The interval's width over the median; NaN while there are too few samples."""
        if not self._ordered:
            return math.nan
        low, high = sorted_interval(self._ordered, self.confidence)
        median = (self._ordered[(self.count - 1) // 2] + self._ordered[self.count // 2]) / 2
        return (high - low) / median if median else math.nan

    def add(self, sample: float) -> None:
        """Take note of one more sample. Raises ValueError for one that is not finite."""
        if not math.isfinite(sample):
            raise ValueError(f"sample {sample} is not finite")
        insort(self._ordered, sample)

    def stop(self, elapsed_s: float) -> bool:
        """Whether enough is known; sets `reason` to `precise`, `max_samples` or `max_seconds`."""
        if self.count < self.min_samples:
            return False
        if self.relative_interval <= self.relative_width:
            self.reason = "precise"
        elif self.count >= self.max_samples:
            self.reason = "max_samples"
        elif elapsed_s >= self.max_seconds:
            self.reason = "max_seconds"
        return bool(self.reason)
