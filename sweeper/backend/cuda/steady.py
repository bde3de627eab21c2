"""Samples at the clock of the run: those taken while it is held down are taken again.

A GPU that is too hot, or draws too much power, runs slower for a while. Each sample comes with the clock at
which it began; the run's own is the highest median clock that any configuration was sampled at, and a sample
more than the tolerance below it does not count. Nor does one during which the device reports that heat or
its power supply slow it down, whatever the clock; a power cap counts by what it does to the clock.

After such a sample the device rests a little. Where the rests that a configuration may have are used up, it
has a clock of its own, as one has that draws more power than the board may. Its samples at the run's clock
stand if they are enough, else those at the lower one do and the others do not; a note says so, and the next
configuration may rest half as long. One at the run's clock doubles that again; three in a row that never came
back to it show that the device cannot hold it, and theirs is the run's from then on.
"""

from __future__ import annotations

import statistics
import time
from enum import Enum

from sweeper.backend.cuda.sampler import Sample
from sweeper.device.nvml import NvmlReadings, slow_down_reasons
from sweeper.statistics import at_clock

__all__ = ["Series", "Steadiness", "Verdict"]

_REST_S = 0.05
_FEW = 3
# So many configurations in a row at a lower clock make it the run's.
_SETTLED = 3
_POWER_CAP = "sw_power_cap"


class Steadiness:
    """What the configurations of a run have in common: its clock, and how long one of them may rest."""

    def __init__(self) -> None:
        self.clock_mhz: float | None = None
        self.patience = 1.0
        self._lower: list[float | None] = []

    def series(self, tolerance: float | None, recovery_s: float, enough: int) -> Series:
        """A judge of the samples of one configuration, of which `enough` are wanted at least."""
        return Series(self, tolerance, recovery_s * self.patience, enough)

    def learn(self, clock_mhz: float | None, *, held_down: bool) -> None:
        """A configuration is done: the median clock of its samples, and whether it stayed below the run's."""
        if not held_down:
            self.patience = min(1.0, 2 * self.patience)
            self._lower.clear()
            if clock_mhz is not None:
                self.clock_mhz = max(self.clock_mhz or 0.0, clock_mhz)
            return
        self.patience /= 2
        self._lower.append(clock_mhz)
        if len(self._lower) == _SETTLED:
            self.clock_mhz = max((clock for clock in self._lower if clock is not None), default=None)
            self.patience = 1.0
            self._lower.clear()


class Verdict(Enum):
    """What became of a sample: it counts, it does not, or it and the earlier `times_ms` are others now."""

    COUNTS = "counts"
    HELD = "held"
    AFRESH = "afresh"


class Series:
    """The samples of one configuration: which of them count.

    `times_ms` are those that do, `discarded` how many do not, `rested_s` the time that was waited for the
    clock to come back. `note` says if it never did; `over` that there will be no more samples then, since
    `enough` were taken before.
    """

    def __init__(self, run: Steadiness, tolerance: float | None, may_rest_s: float, enough: int) -> None:
        self._run = run
        self._tolerance = tolerance
        self._may_rest_s = may_rest_s
        self._enough = enough
        self._clocks: list[float | None] = []
        self._held: list[tuple[float, float | None]] = []
        self.times_ms: list[float] = []
        self.discarded = 0
        self.rested_s = 0.0
        self.note = ""
        self.over = False

    @property
    def clock_mhz(self) -> float | None:
        """The median clock of the samples that count, where it is known."""
        known = [clock for clock in self._clocks if clock is not None]
        return statistics.median(known) if known else None

    def add(self, time_ms: float, sample: Sample, glance: NvmlReadings) -> Verdict:
        """Take note of a sample of `time_ms` a launch, and of a glance at NVML meanwhile.

        Rests before it returns where the sample does not count.
        """
        why = "" if self.note else self._held_down(sample.clock_mhz, glance)
        if not why:
            self.times_ms.append(time_ms)
            self._clocks.append(sample.clock_mhz)
            return Verdict.COUNTS
        self._held.append((time_ms, sample.clock_mhz))
        self.discarded = len(self._held)
        if self.rested_s < self._may_rest_s:
            self._rest()
            return Verdict.HELD
        self.note = f"the clock did not come back in {self.rested_s:.2g} s: {why}"
        if len(self.times_ms) >= self._enough:
            self.over = True
            return Verdict.HELD
        self.discarded = len(self.times_ms)
        self.times_ms = [held_ms for held_ms, _ in self._held]
        self._clocks = [clock for _, clock in self._held]
        return Verdict.AFRESH

    def end(self) -> None:
        """Let the run know of this configuration."""
        self._run.learn(self.clock_mhz, held_down=bool(self.note))

    def _rest(self) -> None:
        seconds = min(_REST_S, self._may_rest_s - self.rested_s)
        time.sleep(seconds)
        self.rested_s += seconds

    def _held_down(self, clock_mhz: float | None, glance: NvmlReadings) -> str:
        """Why a sample at this clock does not count; empty where it does."""
        if self._tolerance is None:
            return ""
        reasons = [r for r in slow_down_reasons(glance) if r != _POWER_CAP]
        if reasons:
            return ", ".join(reasons)
        reference = self._run.clock_mhz or 0.0
        if len(self.times_ms) >= _FEW:
            reference = max(reference, self.clock_mhz or 0.0)
        if clock_mhz is None or not reference or at_clock([clock_mhz], reference, self._tolerance)[0]:
            return ""
        return f"{clock_mhz:.0f} of {reference:.0f} MHz"
