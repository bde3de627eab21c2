"""Noise: intervals, when to stop sampling, and when one configuration is faster than another. Pure functions."""

from __future__ import annotations

from sweeper.statistics.summary import (
    Drift,
    Interval,
    RatioInterval,
    StoppingRule,
    Summary,
    Verdict,
    at_clock,
    drift,
    median_interval,
    outliers,
    paired_log_ratio,
    summary,
    ties,
    verdict,
)

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
