"""How often the reported interval holds the true median, by the kind of noise: seeded simulations.

The noise is relative to a kernel of 1 ms: independent and skewed, in a drift, correlated from sample to
sample (an AR(1) process: each error is φ times the last one and something new), and with samples far out.
`bench/bench_intervals.py` has the whole tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from sweeper.statistics import (
    StoppingRule,
    effective_samples,
    integrated_autocorrelation,
    median_interval,
    series_interval,
)

Series = Callable[[np.random.Generator, int], np.ndarray]
RUNS = 800
# Three standard errors of a share of 0.95 over that many runs.
SLACK = 3 * math.sqrt(0.05 * 0.95 / RUNS)


def skewed(rng: np.random.Generator, count: int) -> np.ndarray:
    """Errors of median 0: a tight body with a tail to the right."""
    return 0.01 * (rng.gamma(2.0, 1.0, count) - 1.6783469900166605)


def correlated(phi: float) -> Series:
    def series(rng: np.random.Generator, count: int) -> np.ndarray:
        shocks = 0.01 * rng.standard_normal(count)
        errors = np.empty(count)
        errors[0] = shocks[0] / math.sqrt(1 - phi * phi)
        for i in range(1, count):
            errors[i] = phi * errors[i - 1] + shocks[i]
        return errors

    return series


def with_outliers(rng: np.random.Generator, count: int) -> np.ndarray:
    """A twentieth of the samples are half as long again, which moves no median by more than a hair."""
    errors = 0.01 * rng.standard_normal(count)
    # As many short ones, so that the median stays where it is.
    errors[rng.random(count) < 0.05] += 0.5
    errors[rng.random(count) < 0.05] -= 0.5
    return errors


def coverage(noise: Series, count: int, interval=series_interval) -> tuple[float, float]:
    """The share of intervals that hold the median, and that of series with no interval at all."""
    rng = np.random.default_rng(20)
    held = none = 0
    for _ in range(RUNS):
        low, high = interval(1 + noise(rng, count))
        none += math.isnan(low)
        held += low <= 1 <= high
    return held / max(1, RUNS - none), none / RUNS


@pytest.mark.parametrize("count", [6, 10, 20, 50, 200])
@pytest.mark.parametrize("noise", [skewed, with_outliers], ids=["skewed", "outliers"])
def test_independent_noise_is_covered_in_at_least_94_percent(noise: Series, count: int) -> None:
    held, none = coverage(noise, count)
    assert held >= 0.94
    assert none <= 0.02


@pytest.mark.parametrize(("count", "least"), [(30, 0.93), (100, 0.94), (300, 0.94)])
@pytest.mark.parametrize("phi", [0.3, 0.6])
def test_correlated_noise_is_covered_too(phi: float, count: int, least: float) -> None:
    held, none = coverage(correlated(phi), count)
    assert held >= least - SLACK
    assert none <= 0.15


@pytest.mark.parametrize(("count", "least"), [(100, 0.90), (300, 0.93), (1000, 0.93)])
def test_strongly_correlated_noise_takes_more_samples(count: int, least: float) -> None:
    held, _ = coverage(correlated(0.8), count)
    assert held >= least - SLACK


@pytest.mark.parametrize(("phi", "most"), [(0.3, 0.92), (0.6, 0.80), (0.8, 0.62)])
def test_order_statistics_alone_cover_less_the_more_the_noise_is_correlated(phi: float, most: float) -> None:
    """What the correction is for."""
    plain, _ = coverage(correlated(phi), 100, median_interval)
    corrected, _ = coverage(correlated(phi), 100)
    assert plain <= most
    assert corrected > plain


def test_below_twenty_samples_correlation_is_neither_seen_nor_corrected() -> None:
    """Stated so that nobody relies on it: a quick look claims less than it seems to."""
    short = correlated(0.6)(np.random.default_rng(1), 19)
    assert integrated_autocorrelation(short) == 1
    assert series_interval(short) == median_interval(short)
    held, _ = coverage(correlated(0.6), 12)
    assert 0.75 < held < 0.90


def test_the_correction_costs_independent_samples_little() -> None:
    rng = np.random.default_rng(3)
    wider = []
    for _ in range(300):
        samples = 1 + skewed(rng, 100)
        plain, corrected = median_interval(samples), series_interval(samples)
        wider.append((corrected.high - corrected.low) / (plain.high - plain.low))
    assert min(wider) >= 1
    assert np.mean(wider) < 1.15


def test_a_drift_makes_the_samples_worth_little_and_the_interval_wide() -> None:
    rng = np.random.default_rng(4)
    steady = 1 + 0.002 * rng.standard_normal(200)
    drifting = steady + np.linspace(-0.02, 0.02, 200)
    assert effective_samples(steady) > 120
    assert effective_samples(drifting) < 20
    low, high = series_interval(drifting)
    # The median over the whole drift is known no better than the drift itself allows.
    assert math.isnan(low) or high - low > 0.01


def test_a_sinusoidal_drift_is_covered_over_its_phases() -> None:
    def breathing(rng: np.random.Generator, count: int) -> np.ndarray:
        phase = 2 * math.pi * (rng.random() + np.arange(count) / 25)
        return 0.01 * np.sin(phase) + 0.004 * rng.standard_normal(count)

    held, _ = coverage(breathing, 200)
    assert held >= 0.94


@pytest.mark.parametrize("phi", [0.3, 0.6, 0.8])
def test_the_autocorrelation_time_is_that_of_the_process(phi: float) -> None:
    # Of the signs of a normal AR(1) process: 1 + 2·Σ (2/π)·arcsin φᵏ.
    true = 1 + 2 * sum(2 / math.pi * math.asin(phi**k) for k in range(1, 200))
    rng = np.random.default_rng(5)
    found = [integrated_autocorrelation(correlated(phi)(rng, 2000)) for _ in range(60)]
    assert np.median(found) == pytest.approx(true, rel=0.12)


def test_equal_samples_are_worth_their_number() -> None:
    assert integrated_autocorrelation([1.0] * 50) == 1
    assert series_interval([1.0] * 50) == (1.0, 1.0)


def test_samples_far_out_in_a_row_do_not_upset_it() -> None:
    rng = np.random.default_rng(6)
    samples = 1 + 0.01 * rng.standard_normal(100)
    before = integrated_autocorrelation(samples)
    samples[40:42] = 1e6
    assert integrated_autocorrelation(samples) < before + 0.5


def test_a_series_that_is_worth_fewer_than_six_samples_has_no_interval() -> None:
    low, high = series_interval(np.repeat([1.0, 2.0, 1.1, 2.1], 10))
    assert math.isnan(low)
    assert math.isnan(high)


def test_stopping_at_a_narrow_interval_is_a_little_optimistic() -> None:
    """Looking after every sample stops where luck has made the interval narrow; the loss is bounded here."""
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(RUNS):
        rule = StoppingRule(min_samples=10, max_samples=100, max_seconds=1e9, relative_width=0.01)
        samples: list[float] = []
        while not rule.stop(0.0):
            samples.append(float(1 + skewed(rng, 1)[0]))
            rule.add(samples[-1])
        low, high = series_interval(samples)
        held += low <= 1 <= high
    assert 0.88 <= held / RUNS <= 0.97
