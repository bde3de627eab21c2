"""What a device draws while it is at work, from a meter that moves in steps.

NVML's energy counter is renewed every few tens of milliseconds, and a reading of it takes some milliseconds as
well. So it is read until it moves, and counted from one step to a later one: the joules between two steps are
the meter's own, and only when a step came is uncertain, by as long as the readings around it took.

Where there is no counter, readings of the power are summed up. Some devices give the mean of the last second
(nvml.h, nvmlDeviceGetPowerUsage), so the device has worked for that long before the first that counts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["WINDOWS", "Drawn", "Window", "by_counter", "by_power"]

WINDOWS = 5
"""Into how many windows the time is divided, from which the interval comes."""

# Two-sided 95 % of Student's t with WINDOWS - 1 degrees of freedom.
_T_QUANTILE = 2.776
# A counter that has not moved for this long does not count.
_DEAD_S = 1.0
_POWER_IS_MEAN_OF_S = 1.0

Clock = Callable[[], float]
Read = Callable[[], float | None]


@dataclass(frozen=True, slots=True)
class Window:
    """Joules drawn in so many seconds."""

    joules: float
    seconds: float

    @property
    def watts(self) -> float:
        return self.joules / self.seconds


@dataclass(frozen=True, slots=True)
class Drawn:
    """Adjoining windows. `resolution` bounds the relative error of their sum that the meter's steps leave."""

    windows: tuple[Window, ...]
    source: str
    step_ms: float | None = None
    resolution: float | None = None

    @property
    def watts(self) -> float:
        return sum(w.joules for w in self.windows) / sum(w.seconds for w in self.windows)

    @property
    def half_width(self) -> float:
        """Half of the mean's 95 % interval, relative: of Student's t over the windows, at least `resolution`."""
        deviation = statistics.stdev(w.watts for w in self.windows)
        scatter = _T_QUANTILE * deviation / math.sqrt(len(self.windows)) / self.watts
        return max(scatter, self.resolution or 0.0)


@dataclass(frozen=True, slots=True)
class _Step:
    """The counter's new value, and that it came at `at_s`, give or take `unsure_s`."""

    millijoules: float
    at_s: float
    unsure_s: float


def by_counter(read_mj: Read, between: Callable[[], None], seconds: float, clock: Clock) -> Drawn | None:
    """What is drawn in at least `seconds`, by a counter of millijoules; None where there is none that moves.

    `between` is called before each reading; it keeps the device at work. `clock` gives seconds.
    """
    steps = _Steps(read_mj, between, clock)
    # What the first step adds was drawn in part before the device was at work.
    first = start = last = steps.next()
    windows: list[Window] = []
    count = 0
    while start is not None and first is not None and len(windows) < WINDOWS:
        last = steps.next()
        if last is None or last.millijoules <= start.millijoules:
            return None
        count += 1
        if last.at_s - start.at_s >= seconds / WINDOWS:
            windows.append(Window((last.millijoules - start.millijoules) / 1e3, last.at_s - start.at_s))
            start = last
    if first is None or last is None:
        return None
    total_s = last.at_s - first.at_s
    resolution = (first.unsure_s + last.unsure_s) / total_s
    return Drawn(tuple(windows), "counter", 1e3 * total_s / count, resolution)


def by_power(read_w: Read, between: Callable[[], None], seconds: float, clock: Clock) -> Drawn | None:
    """The same by readings of the power in watts, each held until the next; None where there are none."""
    ready_s = clock() + _POWER_IS_MEAN_OF_S
    while clock() < ready_s:
        between()
    windows: list[Window] = []
    joules, began_s = 0.0, clock()
    watts, since_s = read_w(), began_s
    while len(windows) < WINDOWS:
        if watts is None or not watts > 0:
            return None
        between()
        now_s, following = clock(), read_w()
        joules += watts * (now_s - since_s)
        watts, since_s = following, now_s
        if now_s - began_s >= seconds / WINDOWS:
            windows.append(Window(joules, now_s - began_s))
            joules, began_s = 0.0, now_s
    return Drawn(tuple(windows), "power")


class _Steps:
    """The counter's steps, one after the other."""

    def __init__(self, read_mj: Read, between: Callable[[], None], clock: Clock) -> None:
        self._read_mj = read_mj
        self._between = between
        self._clock = clock
        self._asked_s = clock()
        self._value = read_mj()

    def next(self) -> _Step | None:
        """The next step; None where the counter cannot be read or stands still."""
        deadline_s = self._clock() + _DEAD_S
        while self._value is not None and self._clock() < deadline_s:
            self._between()
            asked_s, value = self._clock(), self._read_mj()
            answered_s = self._clock()
            if value is None:
                return None
            # The reading before may have been taken as soon as it was asked for, this one as late as its answer.
            before_s, self._asked_s = self._asked_s, asked_s
            if value != self._value:
                self._value = value
                unsure_s = (answered_s - before_s) / 2
                return _Step(value, before_s + unsure_s, unsure_s)
        return None
