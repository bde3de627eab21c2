"""Several kernels and libraries timed in turns, so that whatever drifts hits all of them alike.

    block 1  │ C │ A │ D │ B │     block 2  │ B │ D │ A │ C │     …

Each letter is one time of one of them: the median of a few samples, taken as the search takes its own. The
order is drawn anew for every block. Everyone is verified before the first block and after the last one. A
block in which the clock was held down, or others used the device, is taken again, a bounded number of times.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import numpy as np

from sweeper.backend.base import MeasureProtocol, Rounds, Turns
from sweeper.backend.cuda.arguments import ArgumentSets
from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.kernel import LoadedKernel
from sweeper.backend.cuda.timing import Timer
from sweeper.backend.cuda.verification import Launcher, Verification
from sweeper.device.nvml import slow_down_reasons
from sweeper.errors import TrialFailed
from sweeper.model import Stage

__all__ = ["Runner", "in_turns"]

# What the device is given to do while NVML is asked how it does.
_READING_MS = 3.0
_MOST_LAUNCHES = 2000
# Of the blocks that are asked for, how many may be taken again.
_REPEATS = 0.5


@dataclass(frozen=True, slots=True)
class Runner:
    """One that is loaded, and was verified once. `healing` undoes what a failure in it did to memory.

    `block` gives a block's time where it is not launches that are timed.
    """

    run: Launcher
    sets: ArgumentSets
    verification: Verification
    healing: Callable[[], AbstractContextManager[None]]
    kernel: LoadedKernel | None = None
    note: str = ""
    block: Callable[[], float] | None = None


def in_turns(
    device: CudaDevice,
    timer: Timer,
    begin: Sequence[Callable[[], Runner]],
    protocol: MeasureProtocol,
    rounds: Rounds,
) -> tuple[Turns, ...]:
    """The turns of each of `begin`, which loads and verifies one.

    One that fails has its reason, and the others go on. Raises TrialFailed, with the place of who did it in
    `details["entrant"]`, for a failure after which the process is not usable, and SetupError for a fault of
    the device.
    """
    field = _Field(device, timer, protocol, rounds, len(begin))
    for place, each in enumerate(begin):
        with field.of(place):
            field.runners[place] = each()
    field.take_blocks()
    for place, runner in list(field.runners.items()):
        with field.of(place):
            _verify_again(runner)
    return tuple(field.turns(place) for place in range(len(begin)))


def _verify_again(runner: Runner) -> None:
    """Twice if need be: what the first time finds amiss may be what another one wrote into the arrays."""
    try:
        with runner.healing():
            runner.verification.after_timing()
    except TrialFailed as failure:
        if failure.details.get("sticky"):
            raise
        with runner.healing():
            runner.verification.after_timing()


class _Field:
    """Everyone who is still in it, and what was measured so far."""

    def __init__(
        self, device: CudaDevice, timer: Timer, protocol: MeasureProtocol, rounds: Rounds, count: int
    ) -> None:
        self.runners: dict[int, Runner] = {}
        self._device = device
        self._timer = timer
        self._protocol = protocol
        self._rounds = rounds
        self._known: dict[int, Runner] = {}
        self._reasons: dict[int, str] = {}
        self._times: list[list[float]] = [[] for _ in range(count)]
        self._held: list[list[float]] = [[] for _ in range(count)]
        self._disturbed: Counter[str] = Counter()

    @contextlib.contextmanager
    def of(self, place: int) -> Iterator[None]:
        """Who stands at `place` is out if it fails."""
        try:
            yield
        except TrialFailed as failure:
            if failure.details.get("sticky"):
                failure.details["entrant"] = place
                raise
            self._reasons[place] = failure.reason
            self.runners.pop(place, None)

    def take_blocks(self) -> None:
        rounds, taken, longest_s = self._rounds, 0, 0.0
        self._known = dict(self.runners)
        repeats = int(_REPEATS * rounds.count)
        began = time.monotonic()
        while len(self._longest()) < rounds.count and self.runners:
            start = time.monotonic()
            if taken and start - began + longest_s > rounds.seconds:
                return
            times = self._block(rounds.first + taken)
            why = self._disturbance(times)
            longest_s = max(longest_s, time.monotonic() - start)
            taken += 1
            self._disturbed.update([why] if why else [])
            again = bool(why) and repeats > 0
            repeats -= again
            for place, time_ms in times.items():
                (self._held if again else self._times)[place].append(time_ms)

    def _longest(self) -> list[float]:
        return max(self._times, key=len, default=[])

    def _block(self, number: int) -> dict[int, float]:
        """A time of everyone, in milliseconds a launch, in the order of block `number`."""
        times: dict[int, float] = {}
        order = np.random.default_rng([self._rounds.seed, number]).permutation(len(self._times))
        for place in map(int, order):
            runner = self.runners.get(place)
            if runner is None:
                continue
            known = self._times[place]
            expected = known[-1] if known else runner.verification.launch_ms
            with self.of(place), runner.healing():
                block = runner.block or partial(
                    self._timer.block, runner.run, runner.sets, self._protocol, expected
                )
                times[place] = block()
        return times

    def _disturbance(self, times: dict[int, float]) -> str:
        """What else than the kernels made the times of the block what they are, by NVML's readings now."""
        place = next(reversed(times), None)
        if place is None or place not in self.runners:
            return ""
        runner, monitor = self.runners[place], self._device.monitor
        launches = min(math.ceil(_READING_MS / max(times[place], 1e-6)), _MOST_LAUNCHES)
        with self.of(place), runner.healing(), self._device.doing(Stage.MEASURE):
            for _ in range(launches):
                runner.run(runner.sets.first)
            readings = monitor.readings(fresh=True)
            self._device.synchronize()
            self._device.heat.add(launches * times[place])
            monitor.require_sound(readings)
            if strangers := monitor.strangers(readings):
                return f"others used the GPU (process {', '.join(map(str, strangers))})"
            if reasons := sorted(slow_down_reasons(readings)):
                return f"clock held down: {', '.join(reasons)}"
        return ""

    def turns(self, place: int) -> Turns:
        runner = self._known.get(place)
        kernel = runner.kernel if runner else None
        disturbed = [f"{why} in {count} of the blocks" for why, count in self._disturbed.items()]
        return Turns(
            times_ms=tuple(self._times[place]),
            held_ms=tuple(self._held[place]),
            reason=self._reasons.get(place, ""),
            note="; ".join(filter(None, (runner.note if runner else "", *disturbed))),
            build=kernel.build if kernel else None,
            launch=kernel.launch if kernel else None,
        )
