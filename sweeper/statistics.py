"""Noise, when to stop sampling, and what may be claimed of two kernels. Pure functions on samples.

Nothing here assumes a normal distribution: run times are skewed, quantised by the clock and now and then
far out. Medians carry binomial order-statistic intervals; two kernels are compared on interleaved blocks
by the signed-rank interval of their log ratio, which is exact whenever swapping the two names could not
be noticed. Samples that chose a configuration must not be the ones that judge it: the best of many is
the luckiest, so finalists are measured afresh.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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

Samples = Sequence[float] | npt.NDArray[np.float64]

# From the median absolute deviation to a standard deviation, for normal noise.
_MAD_TO_SIGMA = 1.4826


class Interval(NamedTuple):
    """Lower and upper bound; both NaN where the samples are too few for the confidence asked for."""

    low: float
    high: float


def _array(samples: Samples) -> npt.NDArray[np.float64]:
    values = np.asarray(samples, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"expected at least one sample in one dimension, got shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("samples must be finite; drop failed ones before summarising")
    return values


@lru_cache(maxsize=4096)
def _median_rank(count: int, confidence: float) -> int:
    """The largest r for which [x₍r₎, x₍n+1−r₎] covers the median with at least `confidence`; 0: none.

    P(miss) = 2·P(Bin(n, ½) < r) (David and Nagaraja, Order Statistics, 7.1).
    """
    rank, below, whole = 0, 0, 2**count
    while 2 * (below + math.comb(count, rank)) <= (1 - confidence) * whole:
        below += math.comb(count, rank)
        rank += 1
    return rank


def median_interval(samples: Samples, confidence: float = 0.95) -> Interval:
    """Distribution-free interval of the median from binomial order statistics.

    For independent samples of any distribution it covers the median with at least `confidence`. At 0.95
    it takes six samples; with fewer, both bounds are NaN, because no interval deserves the name.
    Raises ValueError for no samples, or one that is not finite.
    """
    return _sorted_interval(np.sort(_array(samples)), confidence)


def _sorted_interval(ordered: Samples, confidence: float) -> Interval:
    rank = _median_rank(len(ordered), confidence)
    if rank == 0:
        return Interval(math.nan, math.nan)
    return Interval(float(ordered[rank - 1]), float(ordered[-rank]))


@dataclass(frozen=True, slots=True)
class Summary:
    """What `n` samples say; `low` and `high` bound the median, `std` is the sample standard deviation.

    NaN marks what so few samples cannot tell: `std` of one, `low` and `high` below six (at 0.95).
    """

    n: int
    median: float
    low: float
    high: float
    min: float
    mean: float
    std: float
    q25: float
    q75: float


def summary(samples: Samples, confidence: float = 0.95) -> Summary:
    """Defined from one sample on. Raises ValueError for none, or one that is not finite."""
    ordered = np.sort(_array(samples))
    low, high = _sorted_interval(ordered, confidence)
    q25, median, q75 = np.quantile(ordered, (0.25, 0.5, 0.75))
    return Summary(
        n=ordered.size,
        median=float(median),
        low=low,
        high=high,
        min=float(ordered[0]),
        mean=float(ordered.mean()),
        std=float(ordered.std(ddof=1)) if ordered.size > 1 else math.nan,
        q25=float(q25),
        q75=float(q75),
    )


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
        low, high = _sorted_interval(self._ordered, self.confidence)
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


@dataclass(frozen=True, slots=True)
class RatioInterval:
    """time of a ÷ time of b over `blocks` pairs: below 1 where a is the faster. NaN bounds: too few."""

    ratio: float
    low: float
    high: float
    blocks: int


def paired_log_ratio(a_blocks: Samples, b_blocks: Samples, confidence: float = 0.95) -> RatioInterval:
    """The ratio of two times from interleaved blocks, block i of a beside block i of b.

    Each entry is one block's time (its median, say). Pairing cancels what drifts slowly. The estimate is
    the Hodges-Lehmann median of the Walsh averages of log(aᵢ / bᵢ), the interval those averages which the
    signed-rank test does not reject (Hollander and Wolfe, Nonparametric Statistical Methods, 3.2-3.3). At
    0.95 it takes six blocks; with fewer the bounds are NaN.

    Raises ValueError for blocks of different number, none, or times that are not positive.
    """
    a, b = _array(a_blocks), _array(b_blocks)
    if a.size != b.size:
        raise ValueError(f"{a.size} blocks against {b.size}: they must be pairs")
    if not ((a > 0).all() and (b > 0).all()):
        raise ValueError("times must be positive")
    logs = np.log(a / b)
    i, j = np.triu_indices(logs.size)
    walsh = np.sort((logs[i] + logs[j]) / 2)
    rank = _signed_rank(logs.size, confidence)
    low, high = (walsh[rank - 1], walsh[-rank]) if rank else (math.nan, math.nan)
    return RatioInterval(
        math.exp(float(np.median(walsh))), math.exp(float(low)), math.exp(float(high)), a.size
    )


@lru_cache(maxsize=256)
def _signed_rank(count: int, confidence: float) -> int:
    """The largest r for which [w₍r₎, w₍m+1−r₎] of the m Walsh averages has at least `confidence`; 0: none.

    P(miss) = 2·P(T < r), T the signed-rank statistic: T is t for as many of the 2ⁿ sign patterns as
    there are subsets of 1 … n that sum to t.
    """
    subsets = np.zeros(count * (count + 1) // 2 + 1)
    subsets[0] = 1.0
    for size in range(1, count + 1):
        subsets[size:] += subsets[:-size].copy()
        subsets /= 2
    below = np.cumsum(subsets)
    return int(np.searchsorted(2 * below, (1 - confidence) * (1 + 1e-12), side="right"))


class Verdict(StrEnum):
    """What may be said of a kernel against another."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNSURE = "unsure"


def verdict(interval: RatioInterval, least_effect: float = 0.01) -> Verdict:
    """The verdict on a, from the interval of its time over b's.

    SAME where the whole interval is within a factor of 1 + `least_effect`, whatever its sign: a
    difference that nobody would act on. Else FASTER or SLOWER where the interval leaves out 1. Else
    UNSURE: more blocks would tell. A false FASTER or SLOWER is at most as likely as the interval's miss.
    """
    low, high = interval.low, interval.high
    if math.isnan(low) or math.isnan(high):
        return Verdict.UNSURE
    if low >= 1 / (1 + least_effect) and high <= 1 + least_effect:
        return Verdict.SAME
    if high < 1:
        return Verdict.FASTER
    return Verdict.SLOWER if low > 1 else Verdict.UNSURE


def ties(blocks: Sequence[Samples], confidence: float = 0.95, least_effect: float = 0.01) -> list[int]:
    """Which of several interleaved candidates cannot be told from the one with the least median.

    `blocks[c]` are candidate c's times, block i beside everybody's block i. The best itself is in the
    list, which is in the order of `blocks`.
    """
    arrays = [_array(one) for one in blocks]
    best = min(range(len(arrays)), key=lambda c: float(np.median(arrays[c])))
    # Every rival is compared with the same best: share the miss among the comparisons (Bonferroni).
    each = 1 - (1 - confidence) / max(1, len(arrays) - 1)
    return [
        c
        for c, times in enumerate(arrays)
        if c == best
        or verdict(paired_log_ratio(times, arrays[best], each), least_effect) is not Verdict.SLOWER
    ]


@dataclass(frozen=True, slots=True)
class Drift:
    """`change` is the trend from the first to the last sample, relative to the median.

    `significant`: a trend this steady comes from unordered noise in fewer than one run of a hundred.
    """

    change: float
    significant: bool


def drift(samples: Samples) -> Drift:
    """The trend over time in samples in the order they were taken; none is told from fewer than 8.

    Slope by Theil and Sen (the median of all pairwise slopes), significance by Mann and Kendall's normal
    approximation at 1 %, corrected for ties. Long series are thinned to at most 500 block medians.
    """
    values = _array(samples)
    if values.size < 8:
        return Drift(0.0, significant=False)
    if values.size > 500:
        values = np.array([np.median(block) for block in np.array_split(values, 500)])
    n = values.size
    i, j = np.triu_indices(n, k=1)
    rises = values[j] - values[i]
    middle = float(np.median(values))
    change = float(np.median(rises / (j - i))) * (n - 1) / middle if middle else 0.0
    score = float(np.sign(rises).sum())
    _, tied = np.unique(values, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((tied * (tied - 1) * (2 * tied + 5)).sum())) / 18
    z = (abs(score) - 1) / math.sqrt(variance) if variance > 0 and score else 0.0
    return Drift(change, significant=z > 2.576)


def outliers(samples: Samples, sigmas: float = 5.0, least: float = 0.01) -> npt.NDArray[np.bool_]:
    """A mask of samples further from the median than `sigmas` robust standard deviations.

    The deviation is 1.4826 times the median absolute one, but at least `least`/`sigmas` of the median, so
    that samples that agree to the clock's tick are no reason to call the next tick an outlier.
    """
    values = _array(samples)
    middle = float(np.median(values))
    off = np.abs(values - middle)
    limit = max(sigmas * _MAD_TO_SIGMA * float(np.median(off)), least * abs(middle))
    return np.asarray(off > limit)


def at_clock(
    clocks_mhz: Sequence[float | None], reference_mhz: float, tolerance: float = 0.05
) -> npt.NDArray[np.bool_]:
    """A mask of samples taken at no less than `reference_mhz`, short of `tolerance` of it.

    A sample whose clock is not known (None or NaN) counts as good: nothing is claimed about it.
    """
    clocks = np.array([math.nan if clock is None else clock for clock in clocks_mhz], dtype=np.float64)
    return np.asarray(np.isnan(clocks) | (clocks >= (1 - tolerance) * reference_mhz))
