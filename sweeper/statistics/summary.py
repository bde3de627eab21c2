"""Noise, when to stop sampling, and what may be claimed of two kernels. Pure functions on samples.

Nothing here assumes a normal distribution: run times are skewed, quantised by the clock and now and then
far out. Medians carry binomial order-statistic intervals; two kernels are compared on interleaved blocks
by the signed-rank interval of their log ratio, which is exact whenever swapping the two names could not
be noticed. Samples that chose a configuration must not be the ones that judge it: the best of many is
the luckiest, so finalists are measured afresh.

The parts are in `intervals`, `dependence`, `comparison`, `noise`, `entropy` and `stopping`, whose public
names are also here.
"""

from __future__ import annotations

from sweeper.statistics.comparison import RatioInterval, Verdict, paired_log_ratio, ties, verdict
from sweeper.statistics.dependence import effective_samples, integrated_autocorrelation, series_interval
from sweeper.statistics.entropy import LEAST_FOR_ENTROPY, EntropyTrend
from sweeper.statistics.intervals import Interval, Summary, median_interval, summary
from sweeper.statistics.noise import Drift, at_clock, drift, outliers
from sweeper.statistics.stopping import CRITERIA, StoppingRule

__all__ = [
    "CRITERIA",
    "LEAST_FOR_ENTROPY",
    "Drift",
    "EntropyTrend",
    "Interval",
    "RatioInterval",
    "StoppingRule",
    "Summary",
    "Verdict",
    "at_clock",
    "drift",
    "effective_samples",
    "integrated_autocorrelation",
    "median_interval",
    "outliers",
    "paired_log_ratio",
    "series_interval",
    "summary",
    "ties",
    "verdict",
]
