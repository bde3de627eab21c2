"""What may be said of noisy times: intervals, when to stop, verdicts, trends, outliers."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.statistics import (
    Drift,
    EntropyTrend,
    Interval,
    RatioInterval,
    StoppingRule,
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

times = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=60)


def skewed(rng: np.random.Generator, count: int, *, level: float = 1.0) -> np.ndarray:
    """Run times as GPUs give them: a tight body, a long right tail, quantised to half a microsecond."""
    body = level * (1 + 0.01 * rng.gamma(2.0, 1.0, count))
    body[rng.random(count) < 0.05] *= 1.2
    return np.round(body / 5e-4) * 5e-4


# --- the median's interval --------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 5])
def test_too_few_samples_give_no_interval_and_say_so_with_nan(count: int) -> None:
    low, high = median_interval(list(range(1, count + 1)))
    assert math.isnan(low)
    assert math.isnan(high)


def test_six_samples_are_the_first_that_bound_the_median_at_95_percent() -> None:
    assert median_interval([5, 3, 1, 6, 2, 4]) == Interval(1, 6)


@pytest.mark.parametrize(("count", "rank"), [(6, 1), (8, 1), (9, 2), (10, 2), (20, 6), (50, 18), (100, 40)])
def test_the_ranks_are_those_of_the_published_tables(count: int, rank: int) -> None:
    assert median_interval(list(range(1, count + 1))) == Interval(rank, count + 1 - rank)


def test_a_lower_confidence_needs_fewer_samples() -> None:
    assert median_interval([1.0, 2.0, 3.0], confidence=0.7) == Interval(1.0, 3.0)


def test_many_samples_go_over_into_the_normal_approximation_without_a_step() -> None:
    widths = [np.diff(median_interval(np.arange(n)))[0] / math.sqrt(n) for n in (990, 1000, 1001, 1010)]
    assert max(widths) - min(widths) < 0.1


@pytest.mark.parametrize("count", [6, 10, 15, 40])
def test_the_interval_covers_the_true_median_at_least_as_often_as_it_says(count: int) -> None:
    rng = np.random.default_rng(1)
    true = math.log(2)  # the median of the exponential distribution
    covered = 0
    for _ in range(2000):
        low, high = median_interval(rng.exponential(size=count))
        covered += low <= true <= high
    assert covered / 2000 > 0.95 - 3 * math.sqrt(0.05 * 0.95 / 2000)


@given(times)
def test_the_interval_holds_the_sample_median(samples: list[float]) -> None:
    low, high = median_interval(samples)
    if len(samples) >= 6:
        assert min(samples) <= low <= np.median(samples) <= high <= max(samples)


@pytest.mark.parametrize("samples", [[], [[1.0, 2.0]], [1.0, math.nan], [math.inf]])
def test_samples_that_are_none_are_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="sample"):
        median_interval(samples)


# --- summaries --------------------------------------------------------------------------------------


def test_one_sample_has_a_summary() -> None:
    one = summary([2.5])
    assert (one.n, one.median, one.min, one.mean, one.q25, one.q75) == (1, 2.5, 2.5, 2.5, 2.5, 2.5)
    assert math.isnan(one.std)
    assert math.isnan(one.low)


def test_two_samples_have_a_spread_but_no_interval() -> None:
    two = summary([1.0, 3.0])
    assert (two.median, two.std) == (2.0, pytest.approx(math.sqrt(2)))
    assert math.isnan(two.high)


def test_a_summary_does_not_depend_on_the_order() -> None:
    samples = [4.0, 1.0, 3.0, 2.0, 9.0, 5.0, 7.0, 8.0]
    assert summary(samples) == summary(sorted(samples))
    assert (summary(samples).low, summary(samples).high) == (1.0, 9.0)


# --- when to stop -----------------------------------------------------------------------------------


def take(rule: StoppingRule, samples: np.ndarray, seconds_each: float = 0.0) -> int:
    for sample in samples:
        if rule.stop(rule.count * seconds_each):
            break
        rule.add(float(sample))
    return rule.count


def test_steady_samples_stop_at_the_least_number() -> None:
    rule = StoppingRule(min_samples=10)
    assert take(rule, np.full(1000, 1.5)) == 10
    assert rule.reason == "precise"


def test_noisy_samples_go_on_to_the_most() -> None:
    rule = StoppingRule(min_samples=10, max_samples=40)
    assert take(rule, np.random.default_rng(0).exponential(size=1000)) == 40
    assert rule.reason == "max_samples"


def test_time_is_up_but_never_before_the_least_number() -> None:
    rule = StoppingRule(min_samples=10, max_samples=1000, max_seconds=0.2)
    assert take(rule, np.random.default_rng(0).exponential(size=1000), seconds_each=0.1) == 10
    assert rule.reason == "max_seconds"


def test_moderate_noise_stops_as_soon_as_it_is_precise_enough() -> None:
    samples = 1 + 0.01 * np.random.default_rng(0).normal(size=1000)
    loose, tight = (StoppingRule(max_samples=1000, relative_width=width) for width in (0.01, 0.003))
    assert 10 <= take(loose, samples) < take(tight, samples) < 1000
    assert tight.relative_interval <= 0.003
    assert tight.reason == "precise"


def test_one_sample_is_enough_where_one_is_asked_for() -> None:
    rule = StoppingRule(min_samples=1, max_samples=1)
    assert math.isnan(rule.relative_interval)
    assert take(rule, np.array([1.0, 2.0])) == 1
    assert rule.reason == "max_samples"


def test_times_of_zero_are_never_precise() -> None:
    rule = StoppingRule(max_samples=20)
    assert take(rule, np.zeros(100)) == 20


def test_the_median_of_an_even_number_is_the_middle_of_two() -> None:
    rule = StoppingRule()
    for sample in (1.0, 1.0, 1.0, 3.0, 3.0, 3.0):
        rule.add(sample)
    assert rule.relative_interval == pytest.approx(2.0 / 2.0)


@pytest.mark.parametrize(("least", "most"), [(0, 10), (11, 10)])
def test_impossible_rules_are_refused(least: int, most: int) -> None:
    with pytest.raises(ValueError, match="min_samples"):
        StoppingRule(min_samples=least, max_samples=most)


def test_a_failed_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        StoppingRule().add(math.nan)


# --- two kernels ------------------------------------------------------------------------------------


def test_the_ratio_is_estimated_and_bounded() -> None:
    b = np.linspace(1.0, 2.0, 20)
    got = paired_log_ratio(0.9 * b, b)
    assert got.ratio == pytest.approx(0.9)
    assert got.low == pytest.approx(0.9)
    assert got.high == pytest.approx(0.9)
    assert got.blocks == 20


def test_slow_drift_that_both_share_cancels() -> None:
    rng = np.random.default_rng(3)
    heat = np.linspace(1.0, 1.3, 20)  # the device slows down by 30 % meanwhile
    a, b = (level * heat * (1 + 0.002 * rng.normal(size=20)) for level in (0.97, 1.0))
    assert verdict(paired_log_ratio(a, b)) is Verdict.FASTER


def test_swapping_the_two_inverts_the_interval() -> None:
    rng = np.random.default_rng(4)
    a, b = skewed(rng, 15), skewed(rng, 15, level=1.05)
    ab, ba = paired_log_ratio(a, b), paired_log_ratio(b, a)
    assert ab.low == pytest.approx(1 / ba.high)
    assert ab.high == pytest.approx(1 / ba.low)
    assert (verdict(ab), verdict(ba)) == (Verdict.FASTER, Verdict.SLOWER)


def test_fewer_than_six_blocks_tell_nothing() -> None:
    few = paired_log_ratio([1.0] * 5, [2.0] * 5)
    assert few.ratio == 0.5
    assert math.isnan(few.low)
    assert verdict(few) is Verdict.UNSURE
    assert verdict(paired_log_ratio([1.0] * 6, [2.0] * 6)) is Verdict.FASTER


@pytest.mark.parametrize(("a", "b"), [([1.0, 2.0], [1.0]), ([], []), ([0.0], [1.0]), ([1.0], [-1.0])])
def test_blocks_must_be_pairs_of_positive_times(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError, match=r"pairs|sample|positive"):
        paired_log_ratio(a, b)


@pytest.mark.parametrize("count", [6, 7, 10])
def test_the_signed_rank_interval_covers_as_counting_all_sign_patterns_says(count: int) -> None:
    """Under the null every pattern of signs is equally likely: count those whose interval misses 1."""
    sizes = 1.7 ** np.arange(1, count + 1)  # no two Walsh averages tie
    misses = 0
    for signs in product((-1, 1), repeat=count):
        got = paired_log_ratio(np.exp(np.array(signs) * sizes * 1e-3), np.ones(count))
        misses += got.low > 1 or got.high < 1
    assert 0 < misses <= 0.05 * 2**count
    # The next narrower interval would miss too often: this one is as tight as the confidence allows.
    looser = sum(
        got.low > 1 or got.high < 1
        for signs in product((-1, 1), repeat=count)
        if (got := paired_log_ratio(np.exp(np.array(signs) * sizes * 1e-3), np.ones(count), 0.9))
    )
    assert looser > 0.05 * 2**count


def test_the_ratio_s_interval_covers_the_truth_under_skewed_noise() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(1000):
        got = paired_log_ratio(0.95 * rng.lognormal(0, 0.05, 20), rng.lognormal(0, 0.05, 20))
        covered += got.low <= 0.95 <= got.high
    assert covered / 1000 > 0.95 - 3 * math.sqrt(0.05 * 0.95 / 1000)


def test_a_against_a_is_called_different_in_at_most_five_percent() -> None:
    rng = np.random.default_rng(6)
    verdicts = [verdict(paired_log_ratio(skewed(rng, 20), skewed(rng, 20))) for _ in range(200)]
    assert sum(v in (Verdict.FASTER, Verdict.SLOWER) for v in verdicts) <= 10
    # A noise of 20 % leaves nothing to call the same; false claims must still be rare.
    loud = [
        verdict(paired_log_ratio(rng.lognormal(0, 0.2, 20), rng.lognormal(0, 0.2, 20))) for _ in range(200)
    ]
    assert sum(v in (Verdict.FASTER, Verdict.SLOWER) for v in loud) <= 10 + 7  # 5 %, two standard deviations
    assert Verdict.SAME not in loud


def test_the_luckiest_of_200_identical_kernels_is_not_called_faster_when_measured_afresh() -> None:
    rng = np.random.default_rng(7)
    claims_from_search = claims_afresh = 0
    for _ in range(200):
        searched = rng.lognormal(0, 0.03, (200, 20))
        best = int(np.argmin(np.median(searched, axis=1)))
        claims_from_search += verdict(paired_log_ratio(searched[best], searched[0])) is Verdict.FASTER
        afresh = paired_log_ratio(rng.lognormal(0, 0.03, 20), rng.lognormal(0, 0.03, 20))
        claims_afresh += verdict(afresh) is Verdict.FASTER
    assert claims_from_search > 30  # chance allows 5: why finalists are measured again
    assert claims_afresh <= 10


def test_a_real_difference_is_found() -> None:
    rng = np.random.default_rng(8)
    found = sum(
        verdict(paired_log_ratio(skewed(rng, 20), skewed(rng, 20, level=1.05))) is Verdict.FASTER
        for _ in range(100)
    )
    assert found >= 95


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.90, 0.95, Verdict.FASTER),
        (0.98, 0.995, Verdict.FASTER),  # by 1 to 2 %, or half a percent: faster for sure
        (0.992, 0.998, Verdict.SAME),  # faster for sure, by less than anybody would act on
        (0.995, 1.005, Verdict.SAME),
        (1.02, 1.10, Verdict.SLOWER),
        (0.97, 1.005, Verdict.UNSURE),
        (0.9, 1.1, Verdict.UNSURE),
        (math.nan, math.nan, Verdict.UNSURE),
    ],
)
def test_verdicts(low: float, high: float, expected: Verdict) -> None:
    assert verdict(RatioInterval(1.0, low, high, 20)) is expected


def test_what_counts_as_the_same_is_the_reader_s_to_say() -> None:
    interval = RatioInterval(0.97, 0.96, 0.98, 20)
    assert verdict(interval) is Verdict.FASTER
    assert verdict(interval, least_effect=0.05) is Verdict.SAME


# --- several kernels --------------------------------------------------------------------------------


def test_the_tie_set_is_those_that_cannot_be_told_from_the_best() -> None:
    rng = np.random.default_rng(9)
    levels = (1.2, 1.0, 1.0, 1.5, 1.001)
    assert ties([skewed(rng, 20, level=level) for level in levels]) == [1, 2, 4]


def test_tie_sets_of_repeated_runs_overlap_though_their_winners_differ() -> None:
    rng = np.random.default_rng(10)
    levels = [1.0, 1.0, 1.0, 1.0] + [1.1 + 0.02 * c for c in range(11)]
    runs = [[skewed(rng, 20, level=level) for level in levels] for _ in range(3)]
    sets = [set(ties(run)) for run in runs]
    assert set.intersection(*sets) == {0, 1, 2, 3}
    assert len({min(range(15), key=lambda c, run=run: float(np.median(run[c]))) for run in runs}) > 1


def test_one_candidate_ties_with_itself() -> None:
    assert ties([[1.0, 2.0]]) == [0]


# --- noise ------------------------------------------------------------------------------------------


def test_a_trend_is_found_and_sized() -> None:
    rng = np.random.default_rng(11)
    got = drift(np.linspace(1.0, 1.2, 200) * (1 + 0.01 * rng.normal(size=200)))
    assert got.significant
    assert got.change == pytest.approx(0.18, abs=0.03)


def test_a_falling_trend_is_negative_and_outliers_do_not_make_one() -> None:
    falling = drift(np.linspace(1.2, 1.0, 50))
    assert falling.significant
    assert falling.change < -0.15
    rng = np.random.default_rng(12)
    flat = 1 + 0.01 * rng.normal(size=50)
    flat[-1] = 100.0
    assert abs(drift(flat).change) < 0.02


def test_unordered_noise_rarely_looks_like_a_trend() -> None:
    rng = np.random.default_rng(13)
    assert sum(drift(skewed(rng, 50)).significant for _ in range(300)) <= 9


def test_too_few_or_equal_samples_have_no_trend() -> None:
    assert drift([1.0, 2.0, 3.0]) == Drift(0.0, significant=False)
    assert drift([2.0] * 20) == Drift(0.0, significant=False)
    assert drift([0.0] * 20) == Drift(0.0, significant=False)


def test_long_series_are_thinned_and_still_judged() -> None:
    got = drift(np.linspace(1.0, 1.1, 20_000))
    assert got.significant
    assert got.change == pytest.approx(0.1 / 1.05, rel=0.01)


def test_outliers_are_masked() -> None:
    samples = [1.0, 1.01, 0.99, 1.0, 1.02, 3.0, 0.2]
    assert outliers(samples).tolist() == [False] * 5 + [True, True]


def test_a_tick_of_the_clock_is_no_outlier() -> None:
    assert not outliers([1.0] * 20 + [1.0005]).any()
    assert outliers([1.0] * 20 + [1.5]).tolist() == [False] * 20 + [True]


def test_samples_at_a_lower_clock_are_told_apart_and_unknown_clocks_kept() -> None:
    clocks = [1980.0, 1965.0, 990.0, None, math.nan, 1881.0, 1880.0]
    assert at_clock(clocks, 1980).tolist() == [True, True, False, True, True, True, False]
    assert at_clock([], 1980).tolist() == []


# --- entropy ----------------------------------------------------------------------------------------


def entropy_of(samples: list[float]) -> EntropyTrend:
    trend = EntropyTrend()
    for sample in samples:
        trend.add(sample)
    return trend


def test_the_entropy_is_that_of_the_values_seen() -> None:
    assert entropy_of([]).entropy == 0
    assert entropy_of([1.0] * 10).entropy == pytest.approx(0, abs=1e-12)
    assert entropy_of([1.0, 2.0] * 8).entropy == pytest.approx(1.0)
    assert entropy_of([1.0, 2.0, 3.0, 4.0] * 8).entropy == pytest.approx(2.0)


def test_values_within_a_thousandth_are_one_value() -> None:
    assert entropy_of([1.0001, 1.0003, 1.0005] * 4).entropy == pytest.approx(0, abs=1e-12)
    assert entropy_of([1.0, 1.01] * 4).entropy == pytest.approx(1.0)


def test_no_trend_is_told_before_there_are_32_samples() -> None:
    assert entropy_of([1.0] * 31).change == math.inf
    assert entropy_of([1.0] * 32).change == pytest.approx(0, abs=1e-12)


def test_the_entropy_of_a_distribution_that_has_been_seen_stands_still() -> None:
    rng = np.random.default_rng(8)
    few = entropy_of(list(skewed(rng, 40)))
    many = entropy_of(list(skewed(rng, 800)))
    assert abs(few.change) > 0.1
    assert abs(many.change) < 0.05


def test_a_second_mode_that_comes_late_shows_as_a_trend() -> None:
    assert entropy_of([1.0] * 60 + [1.3] * 20).change > 0.3


def test_the_trend_line_is_that_of_least_squares() -> None:
    rng = np.random.default_rng(9)
    trend = entropy_of(list(skewed(rng, 100)))
    recent = trend._entropies[-50:]
    assert trend.change == pytest.approx(49 * np.polyfit(np.arange(50), recent, 1)[0])


@pytest.mark.parametrize(
    ("criterion", "reason", "count"),
    [("width", "precise", 6), ("entropy", "entropy", 32), ("either", "precise", 6), ("both", "both", 32)],
)
def test_steady_samples_stop_by_the_criterion_asked_for(criterion: str, reason: str, count: int) -> None:
    rule = StoppingRule(min_samples=6, max_samples=100, criterion=criterion)
    while not rule.stop(0.0):
        rule.add(1.0)
    assert (rule.reason, rule.count) == (reason, count)


def test_the_entropy_is_enough_where_the_interval_never_gets_as_narrow() -> None:
    rng = np.random.default_rng(10)
    rule = StoppingRule(
        min_samples=6, max_samples=2000, max_seconds=1e9, relative_width=1e-5, criterion="either"
    )
    while not rule.stop(0.0):
        rule.add(float(skewed(rng, 1)[0]))
    assert rule.reason == "entropy"
    assert 32 < rule.count < 1000


def test_what_was_not_met_is_said_in_words() -> None:
    rule = StoppingRule(min_samples=6, max_samples=8, relative_width=0.01, criterion="both")
    for sample in (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7):
        rule.add(sample)
    assert rule.stop(0.0)
    assert rule.reason == "max_samples"
    assert rule.unmet == (
        "the interval is 0.52 of the median wide, wanted 0.01; no trend of entropy, wanted 0.05"
    )


def test_an_unknown_criterion_is_refused() -> None:
    with pytest.raises(ValueError, match="'narrow' is none of width, entropy, either, both"):
        StoppingRule(criterion="narrow")


def test_the_rule_allows_for_dependence_from_twenty_samples_on() -> None:
    rule = StoppingRule(min_samples=20, max_samples=500, relative_width=0.012)
    shaky = np.repeat([1.0, 1.01], 10)
    for sample in np.tile(shaky, 2):
        rule.add(float(sample))
    low, high = median_interval(np.tile(shaky, 2))
    assert (high - low) / 1.005 <= 0.012
    assert not rule.stop(0.0)
