"""What a few samples of one quantity say: a summary, and an interval of the median."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "Interval",
    "Samples",
    "Summary",
    "as_samples",
    "median_interval",
    "ranked_interval",
    "sorted_interval",
    "summary",
]

Samples = Sequence[float] | npt.NDArray[np.float64]


class Interval(NamedTuple):
    """Lower and upper bound; both NaN where the samples are too few for the confidence asked for."""

    low: float
    high: float


def as_samples(samples: Samples) -> npt.NDArray[np.float64]:
    """A non-empty array of finite numbers. Raises ValueError for anything else."""
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
    if count > 1000:  # the normal approximation is off by less than one rank
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        return math.floor((count - z * math.sqrt(count)) / 2)
    below, rank = 1, 0
    while 2 * below <= (1 - confidence) * 2**count:
        rank += 1
        below += math.comb(count, rank)
    return rank


def median_interval(samples: Samples, confidence: float = 0.95) -> Interval:
    """Distribution-free interval of the median from binomial order statistics.

    For independent samples of any distribution it covers the median with at least `confidence`. At 0.95
    it takes six samples; with fewer, both bounds are NaN, because no interval deserves the name.
    Raises ValueError for no samples, or one that is not finite.
    """
    return sorted_interval(np.sort(as_samples(samples)), confidence)


def sorted_interval(ordered: Samples, confidence: float = 0.95) -> Interval:
    """`median_interval` of samples that are already in ascending order."""
    return ranked_interval(ordered, len(ordered), confidence)


def ranked_interval(ordered: Samples, worth: int, confidence: float = 0.95) -> Interval:
    """`sorted_interval` of samples that are worth no more than `worth` independent ones.

    Its ends are at the same share of the samples as those of `worth` samples would be.
    """
    rank = _median_rank(worth, confidence)
    if rank and worth < len(ordered):
        rank = max(1, rank * (len(ordered) + 1) // (worth + 1))
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
    ordered = np.sort(as_samples(samples))
    low, high = sorted_interval(ordered, confidence)
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
