"""What is wrong with a series of samples: a trend, some far out, some taken at a lower clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sweeper.statistics.intervals import Samples, as_samples

__all__ = ["Drift", "at_clock", "drift", "outliers"]

# From the median absolute deviation to a standard deviation, for normal noise.
_MAD_TO_SIGMA = 1.4826


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
    values = as_samples(samples)
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
    values = as_samples(samples)
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
