"""When there are enough samples of one quantity."""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass, field

from sweeper.statistics.dependence import LEAST_CORRECTED, series_interval
from sweeper.statistics.entropy import EntropyTrend
from sweeper.statistics.intervals import Interval, sorted_interval

__all__ = ["CRITERIA", "StoppingRule"]

CRITERIA = ("width", "entropy", "either", "both")
"""What may make samples enough: a narrow interval, an entropy that stands still, one of them, or the two."""


@dataclass(slots=True)
class StoppingRule:
    """Decides after each sample whether to take another.

        rule = StoppingRule(min_samples=10, max_samples=100, max_seconds=1.0, relative_width=0.01)
        while not rule.stop(elapsed_s):
            rule.add(measure())

    `criterion` `width` holds once the median's interval is no wider than `relative_width` of the median,
    `entropy` once the entropy of the samples changes by no more than `entropy_bits` over their later half
    (from 32 samples on), `either` and `both` as they say. Stops there, at `max_samples`, or after
    `max_seconds`; never before `min_samples`, of which at least one. `reason` says which.
    Looking after every sample makes the last interval a little optimistic: good for ranking, not for
    claims. From 20 samples on the interval allows for their dependence.
    """

    min_samples: int = 10
    max_samples: int = 100
    max_seconds: float = 1.0
    relative_width: float = 0.01
    confidence: float = 0.95
    criterion: str = "width"
    entropy_bits: float = 0.05
    reason: str = field(default="", init=False)
    _series: list[float] = field(default_factory=list, init=False, repr=False)
    _ordered: list[float] = field(default_factory=list, init=False, repr=False)
    _entropy: EntropyTrend = field(default_factory=EntropyTrend, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.min_samples <= self.max_samples:
            raise ValueError(
                f"need 1 <= min_samples <= max_samples, got {self.min_samples} and {self.max_samples}"
            )
        if self.criterion not in CRITERIA:
            raise ValueError(f"criterion {self.criterion!r} is none of {', '.join(CRITERIA)}")

    @property
    def count(self) -> int:
        return len(self._ordered)

    @property
    def relative_interval(self) -> float:
        """The interval's width over the median; NaN while there are too few samples."""
        return self._relative(series_interval(self._series, self.confidence)) if self._series else math.nan

    @property
    def entropy_change(self) -> float:
        """Bits over the later half of the samples; infinite while there are too few."""
        return self._entropy.change

    @property
    def unmet(self) -> str:
        """How far the samples are from what the criterion asks for, in words."""
        wide, change = self.relative_interval, self.entropy_change
        width = f"the interval is {wide:.2g} of the median wide" if math.isfinite(wide) else "no interval"
        width += f", wanted {self.relative_width:g}"
        if self.criterion == "width":
            return width
        bits = f"the entropy changes by {change:.2g} bits" if math.isfinite(change) else "no trend of entropy"
        bits += f", wanted {self.entropy_bits:g}"
        return bits if self.criterion == "entropy" else f"{width}; {bits}"

    def _relative(self, interval: Interval) -> float:
        median = (self._ordered[(self.count - 1) // 2] + self._ordered[self.count // 2]) / 2
        return (interval.high - interval.low) / median if median else math.nan

    def add(self, sample: float) -> None:
        """Take note of one more sample. Raises ValueError for one that is not finite."""
        if not math.isfinite(sample):
            raise ValueError(f"sample {sample} is not finite")
        self._series.append(sample)
        insort(self._ordered, sample)
        if self.criterion != "width":
            self._entropy.add(sample)

    def stop(self, elapsed_s: float) -> bool:
        """Whether enough is known; sets `reason` to `precise` (the interval is narrow), `entropy`, `both`,
        `max_samples` or `max_seconds`."""
        if self.count < self.min_samples:
            return False
        if met := self._met():
            self.reason = met
        elif self.count >= self.max_samples:
            self.reason = "max_samples"
        elif elapsed_s >= self.max_seconds:
            self.reason = "max_seconds"
        return bool(self.reason)

    def _met(self) -> str:
        """The criterion that holds, by its reason; empty where what is asked for does not."""
        narrow = self.criterion != "entropy" and self._is_narrow()
        if self.criterion == "width" or (narrow and self.criterion == "either"):
            return "precise" if narrow else ""
        if self.criterion == "both" and not narrow:
            return ""
        still = abs(self._entropy.change) <= self.entropy_bits
        return ("both" if narrow else "entropy") if still else ""

    def _is_narrow(self) -> bool:
        # The dependence, which only widens the interval, costs more to look at than the order.
        if not self._relative(sorted_interval(self._ordered, self.confidence)) <= self.relative_width:
            return False
        return self.count < LEAST_CORRECTED or self.relative_interval <= self.relative_width
