"""Noise: intervals, when to stop sampling, and when one configuration is faster than another. Pure functions."""

from __future__ import annotations

from sweeper.statistics.finals import Final, decide
from sweeper.statistics.summary import (
    CRITERIA,
    LEAST_FOR_ENTROPY,
    Drift,
    EntropyTrend,
    Interval,
    RatioInterval,
    StoppingRule,
    Summary,
    Verdict,
    at_clock,
    drift,
    effective_samples,
    integrated_autocorrelation,
    median_interval,
    outliers,
    paired_log_ratio,
    series_interval,
    summary,
    ties,
    verdict,
)

__all__ = [
    "CRITERIA",
    "LEAST_FOR_ENTROPY",
    "Drift",
    "EntropyTrend",
    "Final",
    "Interval",
    "RatioInterval",
    "StoppingRule",
    "Summary",
    "Verdict",
    "at_clock",
    "decide",
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
