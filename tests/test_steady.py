"""Which samples count by the clock they were taken at, and what a run learns of its device's clock."""

from __future__ import annotations

import pytest

from sweeper.backend.cuda.sampler import Sample
from sweeper.backend.cuda.steady import Series, Steadiness, Verdict
from sweeper.device.nvml import NvmlReadings

QUIET = NvmlReadings()
ENOUGH = 5


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    rests: list[float] = []
    monkeypatch.setattr("sweeper.backend.cuda.steady.time.sleep", rests.append)
    return rests


def at(clock_mhz: float | None, time_ms: float = 1.0) -> tuple[float, Sample]:
    return time_ms, Sample(time_ms, clock_mhz)


def run_at(clock_mhz: float) -> Steadiness:
    """A run whose first configuration was sampled at this clock."""
    run = Steadiness()
    run.learn(clock_mhz, held_down=False)
    return run


def fed(series: Series, *clocks: float | None, glance: NvmlReadings = QUIET) -> list[Verdict]:
    return [series.add(*at(clock), glance) for clock in clocks]


def test_the_first_configuration_sets_the_clock_of_the_run(rests: list[float]) -> None:
    run = Steadiness()
    series = run.series(0.05, 0.5, ENOUGH)
    assert fed(series, 1980, 1980, 1965, 1980, None) == [Verdict.COUNTS] * 5
    series.end()
    assert run.clock_mhz == 1980
    assert rests == []


@pytest.mark.parametrize(("clock", "verdict"), [(1882, Verdict.COUNTS), (1880, Verdict.HELD)])
def test_a_sample_counts_down_to_95_percent_of_the_run_s_clock(
    rests: list[float], clock: float, verdict: Verdict
) -> None:
    assert fed(run_at(1980).series(0.05, 0.5, ENOUGH), clock) == [verdict]


def test_a_clock_that_falls_within_a_configuration_is_seen_after_three_samples(rests: list[float]) -> None:
    series = Steadiness().series(0.05, 0.5, ENOUGH)
    assert fed(series, 1980, 1980, 1980, 1500)[-1] is Verdict.HELD
    assert (series.times_ms, series.discarded, len(rests)) == ([1.0] * 3, 1, 1)


def test_an_unknown_clock_claims_nothing(rests: list[float]) -> None:
    series = run_at(1980).series(0.05, 0.5, ENOUGH)
    assert fed(series, None, None) == [Verdict.COUNTS] * 2
    assert series.clock_mhz is None


def test_without_a_tolerance_every_sample_counts(rests: list[float]) -> None:
    hot = NvmlReadings(throttle_reasons=("hw_thermal_slowdown",))
    assert fed(run_at(1980).series(None, 0.5, ENOUGH), 300, glance=hot) == [Verdict.COUNTS]


@pytest.mark.parametrize(
    ("reason", "verdict"),
    [
        ("hw_thermal_slowdown", Verdict.HELD),
        ("sw_thermal_slowdown", Verdict.HELD),
        ("hw_power_brake_slowdown", Verdict.HELD),
        ("hw_slowdown", Verdict.HELD),
        ("sw_power_cap", Verdict.COUNTS),
        ("gpu_idle", Verdict.COUNTS),
        ("applications_clocks_setting", Verdict.COUNTS),
    ],
)
def test_heat_and_the_power_supply_discard_at_any_clock(
    rests: list[float], reason: str, verdict: Verdict
) -> None:
    glance = NvmlReadings(throttle_reasons=(reason,))
    assert fed(run_at(1980).series(0.05, 0.5, ENOUGH), 1980, glance=glance) == [verdict]


def test_what_never_comes_back_is_measured_as_it_is(rests: list[float]) -> None:
    series = run_at(1980).series(0.05, 0.1, ENOUGH)
    assert fed(series, 1980, 1600, 1600, 1600) == [
        *(Verdict.COUNTS, Verdict.HELD, Verdict.HELD),
        Verdict.AFRESH,
    ]
    assert sum(rests) == pytest.approx(0.1)
    # The three at the lower clock are its samples now; the one at the run's is not.
    assert (len(series.times_ms), series.discarded, series.clock_mhz) == (3, 1, 1600)
    assert "1600 of 1980 MHz" in series.note
    assert fed(series, 1600) == [Verdict.COUNTS]
    assert not series.over


def test_enough_samples_at_the_run_s_clock_stand_where_it_goes_down_for_good(rests: list[float]) -> None:
    series = run_at(1980).series(0.05, 0.0, ENOUGH)
    fed(series, *[1980] * ENOUGH)
    assert fed(series, 1500) == [Verdict.HELD]
    assert series.over
    assert (len(series.times_ms), series.discarded, series.clock_mhz) == (ENOUGH, 1, 1980)


def test_patience_halves_with_each_that_never_came_back_and_doubles_with_each_that_is_steady() -> None:
    run = run_at(1980)
    run.learn(1600, held_down=True)
    run.learn(1600, held_down=True)
    assert run.patience == 0.25
    assert run.clock_mhz == 1980
    run.learn(1980, held_down=False)
    assert run.patience == 0.5
    run.learn(1980, held_down=False)
    run.learn(1980, held_down=False)
    assert run.patience == 1.0


def test_three_in_a_row_at_a_lower_clock_make_it_the_run_s() -> None:
    run = run_at(1980)
    for clock in (1600, 1610, 1605):
        run.learn(clock, held_down=True)
    assert (run.clock_mhz, run.patience) == (1610, 1.0)
    run.learn(1980, held_down=False)
    assert run.clock_mhz == 1980
