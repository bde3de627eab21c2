"""What samples are worth that depend on the ones before: their number, and an interval of the median.

Order statistics take samples for independent. Neighbouring run times are not quite: clocks and
temperatures outlast a launch. Under dependence the median of n samples scatters as that of n/τ independent
ones, τ = 1 + 2·Σ ρₖ with ρₖ the autocorrelation at lag k of which side of the median a sample is on (the
median's variance depends on nothing else: Sen, "Asymptotic normality of sample quantiles for m-dependent
processes", Ann. Math. Statist. 39, 1968). Taking sides keeps the estimate free of the distribution and of
outliers. The sum runs over pairs of lags while they are positive and falling (Geyer, "Practical Markov
Chain Monte Carlo", Statist. Sci. 7, 1992). Correlations are estimated too low from few samples; 2τ/n makes
up for that to the first order.

Below 20 samples nothing is corrected: a dependence cannot be told from chance there.
"""

from __future__ import annotations

import math

import numpy as np

from sweeper.statistics.intervals import Interval, Samples, as_samples, ranked_interval

__all__ = ["LEAST_CORRECTED", "effective_samples", "integrated_autocorrelation", "series_interval"]

LEAST_CORRECTED = 20
"""The number of samples from which on their dependence is looked at."""


def integrated_autocorrelation(samples: Samples) -> float:
    """τ ≥ 1 of samples in the order they were taken; 1 for fewer than 20, and at most their number."""
    values = as_samples(samples)
    n = values.size
    if n < LEAST_CORRECTED:
        return 1.0
    sides = np.sign(values - np.median(values))
    sides -= sides.mean()
    power = float(sides @ sides)
    if power == 0:
        return 1.0
    # Padded to twice the length: the series does not go round in a circle.
    spectrum = np.fft.rfft(sides, 2 * n)
    correlations = np.fft.irfft(spectrum * np.conj(spectrum))[: n // 2] / power
    pairs = correlations[: correlations.size // 2 * 2].reshape(-1, 2).sum(axis=1)
    positive = int(np.argmax(pairs <= 0)) if (pairs <= 0).any() else pairs.size
    tau = 2 * float(np.minimum.accumulate(pairs[:positive]).sum()) - 1
    return min(tau * (1 + 2 * tau / n), float(n)) if tau > 1 else 1.0


def effective_samples(samples: Samples) -> float:
    """How many independent samples these are worth, in the order they were taken."""
    return len(samples) / integrated_autocorrelation(samples)


def series_interval(samples: Samples, confidence: float = 0.95) -> Interval:
    """Distribution-free interval of the median of samples in the order they were taken.

    `median_interval` with the ranks that as many independent samples would have. NaN bounds where they
    are worth fewer than it takes (six at 0.95). Raises ValueError as that does.
    """
    values = as_samples(samples)
    worth = values.size / integrated_autocorrelation(values)
    return ranked_interval(np.sort(values), math.floor(worth), confidence)
