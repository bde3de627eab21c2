"""Whether a distribution has been seen: the entropy of its samples no longer grows.

The idea is NVBench's `entropy` stopping criterion (its command line's help: a regression of the cumulative
entropy over the samples, and the angle of its line). This one is in bits and needs no angle: values count
as equal within 0.1 %, and the trend line over the later half of the samples must rise or fall by less than
a given number of bits.
"""

from __future__ import annotations

import math
from collections import Counter

__all__ = ["LEAST_FOR_ENTROPY", "EntropyTrend"]

LEAST_FOR_ENTROPY = 32
"""The number of samples from which on a trend is told."""

_LONGEST_TREND = 256


class EntropyTrend:
    """Shannon entropy of the samples so far, in bits, and how it has changed of late."""

    def __init__(self, resolution: float = 0.001) -> None:
        self._width = math.log1p(resolution)
        self._counts: Counter[int] = Counter()
        self._weight = 0.0
        self._entropies: list[float] = []

    def add(self, sample: float) -> None:
        """Take note of one more sample; all that are not positive count as one value."""
        key = math.floor(math.log(sample) / self._width) if sample > 0 else -(10**9)
        before = self._counts[key]
        self._counts[key] = before + 1
        self._weight += (before + 1) * math.log2(before + 1) - (before * math.log2(before) if before else 0.0)
        total = len(self._entropies) + 1
        self._entropies.append(max(0.0, math.log2(total) - self._weight / total))

    @property
    def entropy(self) -> float:
        """0 where all samples are one value, or there are none."""
        return self._entropies[-1] if self._entropies else 0.0

    @property
    def change(self) -> float:
        """Bits by which the least-squares line rises over the later half of the samples, at most 256 of them.

        Infinite below 32 samples.
        """
        total = len(self._entropies)
        if total < LEAST_FOR_ENTROPY:
            return math.inf
        recent = self._entropies[-min(total // 2, _LONGEST_TREND) :]
        n = len(recent)
        middle = (n - 1) / 2
        slope = sum((i - middle) * h for i, h in enumerate(recent)) / (n * (n * n - 1) / 12)
        return slope * (n - 1)
