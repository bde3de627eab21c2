"""A candidate that is surely too slow is found out by a few samples, and one that is not almost never."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sweeper.backend.cuda.early_stop import _QUANTILES, lower_bound, surely_above


def test_the_errors_of_all_looks_add_up_to_one_per_cent() -> None:
    shares = [float(stats.t.sf(quantile, n - 1)) for n, quantile in _QUANTILES.items()]
    assert shares == pytest.approx([0.005, 0.0025, 0.00125, 0.00125], rel=1e-3)
    assert sum(shares) <= 0.01


def test_two_samples_stop_what_is_far_above_the_limit() -> None:
    assert surely_above(1.0, [1.2, 1.201])
    assert surely_above(1.0, [3.0, 3.0])


def test_one_sample_says_nothing() -> None:
    assert lower_bound([100.0]) is None
    assert not surely_above(1.0, [100.0])


def test_nobody_looks_after_five_samples() -> None:
    assert not surely_above(1.0, [100.0] * 6)


@pytest.mark.parametrize("samples", [[1.04, 1.04], [1.5, 3.0], [0.99, 1.5, 1.5], [1.0, 1.2, 1.2, 1.2, 1.2]])
def test_what_might_be_as_fast_as_the_limit_goes_on(samples: list[float]) -> None:
    assert not surely_above(1.0, samples)


def test_three_samples_stop_what_is_a_little_above() -> None:
    assert not surely_above(1.0, [1.02, 1.021])
    assert surely_above(1.0, [1.02, 1.021, 1.0205])


def test_the_bound_that_is_told_is_below_every_mean_of_the_samples() -> None:
    bound = lower_bound([2.0, 2.02])
    assert bound is not None
    assert 1.0 < bound < 2.0


@pytest.mark.parametrize("noise", [0.0005, 0.002, 0.01, 0.05])
def test_at_the_limit_itself_at_most_one_in_a_hundred_is_stopped(noise: float) -> None:
    rng = np.random.default_rng(5)
    runs = 1.0 + noise * rng.standard_normal((4000, 5))
    stopped = sum(any(surely_above(1.0, list(run[:n])) for n in range(1, 6)) for run in runs)
    assert stopped / len(runs) <= 0.01
