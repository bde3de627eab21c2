"""A meter that moves in steps: joules between steps, intervals over windows, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from sweeper.backend.cuda.energy_meter import WINDOWS, by_counter, by_power


@dataclass
class Meter:
    """A counter that is renewed every `step_s` seconds, read in `read_s`, of a device that draws `watts(t)`."""

    step_s: float = 0.02
    read_s: float = 0.003
    watts: float = 400.0
    now_s: float = 12.3456
    reads: int = 0
    between_calls: int = 0
    powers: list[float | None] = field(default_factory=list)

    def clock(self) -> float:
        return self.now_s

    def between(self) -> None:
        self.between_calls += 1
        self.now_s += 0.0005

    def read_mj(self) -> float | None:
        self.reads += 1
        seen_s = self.now_s
        self.now_s += self.read_s
        return 1e3 * self.watts * (seen_s // self.step_s) * self.step_s

    def read_w(self) -> float | None:
        self.now_s += self.read_s
        return self.powers.pop(0) if len(self.powers) > 1 else self.powers[0] if self.powers else self.watts


@pytest.mark.parametrize("step_s", [0.005, 0.02, 0.1])
@pytest.mark.parametrize("read_s", [0.00002, 0.003, 0.015])
def test_a_known_power_is_read_within_the_resolution_that_is_told(step_s: float, read_s: float) -> None:
    meter = Meter(step_s, read_s)
    drawn = by_counter(meter.read_mj, meter.between, 0.3, meter.clock)
    assert drawn is not None
    assert drawn.resolution is not None
    assert abs(drawn.watts / 400 - 1) <= drawn.resolution
    assert drawn.half_width >= drawn.resolution
    assert len(drawn.windows) == WINDOWS
    assert drawn.source == "counter"


def test_windows_lie_between_steps_and_last_as_long_as_asked() -> None:
    meter = Meter(step_s=0.02, read_s=0.00002)
    drawn = by_counter(meter.read_mj, meter.between, 0.5, meter.clock)
    assert drawn is not None
    for window in drawn.windows:
        assert window.seconds >= 0.5 / WINDOWS
        steps = window.seconds / 0.02
        assert steps == pytest.approx(round(steps), abs=0.06), (
            "a window begins and ends where the counter moves"
        )
        assert window.joules == pytest.approx(400 * 0.02 * round(steps))
    assert drawn.step_ms == pytest.approx(20, abs=1)


def test_a_slow_counter_makes_the_run_longer_rather_than_less_sure() -> None:
    meter = Meter(step_s=0.1, read_s=0.002)
    began = meter.now_s
    drawn = by_counter(meter.read_mj, meter.between, 0.05, meter.clock)
    assert drawn is not None
    assert meter.now_s - began >= WINDOWS * 0.1
    assert drawn.resolution is not None
    assert drawn.resolution < 0.02


def test_what_was_drawn_before_the_first_step_does_not_count() -> None:
    meter = Meter(step_s=0.05, read_s=0.0001)
    busy_from_s = meter.now_s

    def read_mj() -> float:
        meter.now_s += meter.read_s
        seen_s = (meter.now_s // meter.step_s) * meter.step_s
        return 1e3 * (80 * min(seen_s, busy_from_s) + 600 * max(0.0, seen_s - busy_from_s))

    drawn = by_counter(read_mj, meter.between, 0.3, meter.clock)
    assert drawn is not None
    assert drawn.watts == pytest.approx(600, rel=0.01)


def test_the_interval_is_as_wide_as_the_windows_differ() -> None:
    meter = Meter(step_s=0.001, read_s=0.00001)
    joules = [0.0]

    def read_mj() -> float:
        meter.watts = 300.0 if (meter.now_s // 0.06) % 2 else 500.0
        meter.now_s += 0.001
        joules[0] += meter.watts
        return joules[0]

    drawn = by_counter(read_mj, meter.between, 0.3, meter.clock)
    assert drawn is not None
    assert drawn.resolution is not None
    assert drawn.half_width > 3 * drawn.resolution


@pytest.mark.parametrize("value", [None, 7.0])
def test_a_counter_that_is_missing_or_stands_still_is_none(value: float | None) -> None:
    meter = Meter()
    assert by_counter(lambda: value, meter.between, 0.3, meter.clock) is None
    assert meter.now_s < 15, "nobody waits for it for long"


def test_a_counter_that_goes_backwards_is_none() -> None:
    meter = Meter()
    values = iter([9.0, 10.0, 3.0])
    assert by_counter(lambda: next(values), meter.between, 0.3, meter.clock) is None


def test_readings_of_the_power_are_summed_up_after_a_second_of_work() -> None:
    meter = Meter(watts=350.0)
    began = meter.now_s
    drawn = by_power(meter.read_w, meter.between, 0.3, meter.clock)
    assert drawn is not None
    assert drawn.watts == pytest.approx(350)
    assert drawn.source == "power"
    assert len(drawn.windows) == WINDOWS
    assert meter.now_s - began > 1.3
    assert drawn.resolution is None, "how often such readings are renewed is not known"


@pytest.mark.parametrize("powers", [[None], [300.0, None], [0.0]])
def test_no_power_is_none(powers: list[float | None]) -> None:
    meter = Meter(powers=powers)
    assert by_power(meter.read_w, meter.between, 0.3, meter.clock) is None
