"""When a few samples are enough: a candidate that is surely slower than it would have to be.

With `limit` the time that still matters, sampling stops after n = 2 … 5 samples once

    mean − t(n)·s/√n > limit,    s the standard deviation seen, but at least 0.2 % of the mean,

and no sample is at or below the limit. t(n) is Student's quantile with n − 1 degrees of freedom at one
side's error of 0.5, 0.25, 0.125 and 0.125 %: for independent, normally distributed noise a candidate whose
mean is at most `limit` is stopped with a probability of at most their sum, 1 %. The floor under s is the
spread of event times on a quiet GPU (0.1 to 0.7 %), for two samples may agree by chance. So two samples
stop what is 9 % above the limit, three what is 1.7 % above it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

__all__ = ["lower_bound", "surely_above"]

# By the number of samples.
_QUANTILES = {2: 63.6567, 3: 14.0890, 4: 9.4649, 5: 6.7583}
_LEAST_SPREAD = 0.002


def lower_bound(samples: Sequence[float]) -> float | None:
    """What the mean is surely not below; None for a number of samples at which nobody looks."""
    quantile = _QUANTILES.get(len(samples))
    if quantile is None:
        return None
    mean = statistics.fmean(samples)
    spread = max(statistics.stdev(samples), _LEAST_SPREAD * mean)
    return mean - quantile * spread / math.sqrt(len(samples))


def surely_above(limit: float, samples: Sequence[float]) -> bool:
    """Whether so few `samples` already say that the candidate's mean is above `limit`."""
    bound = lower_bound(samples)
    return bound is not None and bound > limit and min(samples) > limit
