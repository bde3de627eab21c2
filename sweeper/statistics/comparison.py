"""What may be claimed of two kernels, or of several, from interleaved blocks of measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np

from sweeper.statistics.intervals import Samples, as_samples

__all__ = ["RatioInterval", "Verdict", "paired_log_ratio", "ties", "verdict"]


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
    a, b = as_samples(a_blocks), as_samples(b_blocks)
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
    arrays = [as_samples(one) for one in blocks]
    best = min(range(len(arrays)), key=lambda c: float(np.median(arrays[c])))
    # Every rival is compared with the same best: share the miss among the comparisons (Bonferroni).
    each = 1 - (1 - confidence) / max(1, len(arrays) - 1)
    return [
        c
        for c, times in enumerate(arrays)
        if c == best
        or verdict(paired_log_ratio(times, arrays[best], each), least_effect) is not Verdict.SLOWER
    ]
