"""Timing of launches by CUDA events on the one stream.

One sample is what lies between two events, and all of it is queued while the device is still busy:

    stream   … │ flush │ spin │ start │ launch × batch │ stop │

`flush` overwrites twice the L2 cache (`cold`), or is an untimed launch (`warm`). `spin` keeps the
device busy while the host queues the rest; if the device reaches `start` before the host is done, the
launch path itself would be inside the interval, so the sample is thrown away and the spin doubled.

Short kernels are timed in batches, so that the events' own cost is spread. A cold batch gives every
launch its own copy of the arrays, all flushed beforehand: each finds its data in memory, not in L2.

The clock is warm once the device has worked for `warmup_ms` without a rest, whatever it worked at: in the
midst of a sweep that is so from the start, and the verified launches have been this kernel's own first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from sweeper.backend.base import MeasureProtocol
from sweeper.backend.cuda.arguments import ArgumentSets
from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.early_stop import lower_bound, surely_above
from sweeper.backend.cuda.phases import Phases
from sweeper.backend.cuda.verification import Launcher
from sweeper.device.nvml import NvmlReadings, slow_down_reasons
from sweeper.errors import TrialFailed
from sweeper.model import Stage, Status, Timing
from sweeper.statistics import StoppingRule, drift

__all__ = ["Timer"]

Queue = Callable[[], None]

# An interval shorter than this is filled with several launches: two events cost about 1 µs.
_INTERVAL_MS = 0.1
# A verified launch this long is estimate enough: it is timed by itself.
_LONG_MS = 2 * _INTERVAL_MS
_MOST_LAUNCHES = 32
_LEAST_SPIN_MS = 0.05
_MOST_SPIN_MS = 20.0
_SPIN_DECAY = 0.95
_LEAST_FLUSH_BYTES = 1 << 24
_MOST_WARMUPS = 20_000
# What the device is given to do while NVML is asked how it does.
_READING_MS = 3.0
# A kernel must take this many times as long as an empty one for its time to say anything.
_FLOOR_FACTOR = 1.1


class Timer:
    """Times launches on one device; kept while it is open, with the buffer that flushes its L2 cache.

    Raises TrialFailed where there is no memory for that.
    """

    def __init__(self, device: CudaDevice, *, l2_bytes: int) -> None:
        self._device = device
        self._flush_bytes = max(2 * l2_bytes, _LEAST_FLUSH_BYTES)
        self._flush_buffer = device.allocate(self._flush_bytes)
        self._spin_ms = _LEAST_SPIN_MS
        self._floors: dict[int, float] = {}
        self._flushes = 0

    def measure(
        self,
        launch: Launcher,
        sets: ArgumentSets,
        protocol: MeasureProtocol,
        phases: Phases,
        expected_ms: float | None,
    ) -> tuple[Timing, NvmlReadings]:
        """Samples of `launch` in milliseconds a launch; `expected_ms` is what a verified one took, if known.

        The readings are those after the last sample. Raises TrialFailed: `unstable` where the kernel
        cannot be told from an empty one.
        """
        cold = protocol.cache == "cold"
        queues = [_queue(launch, sets, 0)]
        flush = self._flush(queues[0], sets, cold=cold)
        with self._device.doing(Stage.MEASURE):
            with phases("warmup"):
                is_long = expected_ms is not None and expected_ms >= _LONG_MS
                single_ms = expected_ms if expected_ms and is_long else self._sample(queues, flush)
                batch = _batch(single_ms, sets, cold=cold)
                queues = [_queue(launch, sets, n if cold else 0) for n in range(batch)]
                self._warm_up(queues[0], protocol.warmup_ms, single_ms)
            with phases("measure"):
                samples, stopped = self._samples(queues, flush, protocol, glance=single_ms >= _READING_MS)
                busy, after = self._device.monitor.latest, self._device.monitor.readings()
                self._require_above_floor(samples, batch)
        timing = Timing(
            samples_ms=tuple(samples),
            method="events" if batch == 1 else f"events×{batch}",
            cache=protocol.cache,
            sm_clock_mhz=_mean(busy.sm_clock_mhz, after.sm_clock_mhz),
            memory_clock_mhz=busy.memory_clock_mhz,
            power_w=busy.power_w,
            temperature_c=after.temperature_c,
            note="; ".join(filter(None, (stopped, _note(samples, busy, after)))),
        )
        return timing, after

    def _warm_up(self, queue: Queue, warmup_ms: float, each_ms: float) -> None:
        """Launch until the device is warm; readings that are due are taken meanwhile.

        Those of a kernel that is long enough by itself wait for its first sample.
        """
        heat, monitor = self._device.heat, self._device.monitor
        reading = monitor.due and each_ms < _READING_MS
        lacking_ms = max(heat.lacking_ms(warmup_ms), _READING_MS if reading else 0.0)
        launches = min(math.ceil(lacking_ms / max(each_ms, 1e-6)), _MOST_WARMUPS)
        for _ in range(launches):
            queue()
        if reading:
            monitor.readings()
        if launches:
            self._device.synchronize()
            heat.add(launches * each_ms)

    def _samples(
        self, queues: Sequence[Queue], flush: Queue, protocol: MeasureProtocol, *, glance: bool
    ) -> tuple[list[float], str]:
        """The samples, and why they are fewer than the protocol asks for; during the first one a `glance` at NVML."""
        rule = StoppingRule(
            min_samples=protocol.min_samples,
            max_samples=protocol.max_samples,
            max_seconds=protocol.max_seconds,
            relative_width=protocol.relative_width,
        )
        limit_ms = protocol.stop_above_ms
        samples: list[float] = []
        began = time.monotonic()
        # A kernel so slow that its least samples would run into the deadline gives the samples it can.
        while not rule.stop(elapsed := time.monotonic() - began):
            if samples and elapsed > protocol.deadline_s / 4:
                break
            taken_ms = self._sample(queues, flush, glance=glance and not samples)
            samples.append(taken_ms / len(queues))
            rule.add(samples[-1])
            if limit_ms is not None and surely_above(limit_ms, samples):
                return samples, f"stopped early: at least {lower_bound(samples):.4g} ms"
        return samples, ""

    def _sample(self, queues: Sequence[Queue], flush: Queue, *, glance: bool = False) -> float:
        """Milliseconds between the events around `queues`, all queued while the device was busy."""
        stopwatch = self._device.stopwatch
        while True:
            flush()
            self._device.pause(self._spin_ms)
            stopwatch.start()
            for queue in queues:
                queue()
            stopwatch.stop()
            late = stopwatch.started
            if glance:
                self._device.monitor.readings()
            elapsed_ms = stopwatch.wait_ms()
            self._device.heat.add(elapsed_ms + self._spin_ms)
            if not late or self._spin_ms >= _MOST_SPIN_MS:
                # One stall of the host must not slow every later sample.
                self._spin_ms = max(_SPIN_DECAY * self._spin_ms, _LEAST_SPIN_MS)
                return elapsed_ms
            self._spin_ms = min(2 * self._spin_ms, _MOST_SPIN_MS)

    def _flush(self, queue: Queue, sets: ArgumentSets, *, cold: bool) -> Queue:
        """What brings cache and arrays into the state in which a sample begins."""

        def flush() -> None:
            sets.first.refill()
            if cold:
                self._flush_cache()
            elif not sets.first.accumulates:
                queue()

        return flush

    def _flush_cache(self) -> None:
        self._flushes += 1
        address, value = int(self._flush_buffer), self._flushes % 256
        self._device.drv.memset_d8_async(address, value, self._flush_bytes, self._device.stream)

    def _require_above_floor(self, samples: Sequence[float], batch: int) -> None:
        middle = sorted(samples)[len(samples) // 2]
        if middle >= _INTERVAL_MS:
            return
        floor = self._floor(batch)
        if middle <= _FLOOR_FACTOR * floor:
            raise TrialFailed(
                Status.UNSTABLE,
                Stage.MEASURE,
                f"{middle * 1e3:.2f} µs a launch is no more than an empty kernel's {floor * 1e3:.2f} µs",
                details={"floor_ms": floor, "time_ms": middle},
            )

    def _floor(self, batch: int) -> float:
        """Milliseconds a launch of an empty kernel, measured in the same way."""
        if batch not in self._floors:
            queues = [self._device.code.nothing] * batch
            self._floors[batch] = min(self._sample(queues, self._flush_cache) for _ in range(5)) / batch
        return self._floors[batch]


def _queue(launch: Launcher, sets: ArgumentSets, number: int) -> Queue:
    """A launch on the set of arguments of that number."""
    arguments = sets[number]
    return lambda: launch(arguments)


def _batch(single_ms: float, sets: ArgumentSets, *, cold: bool) -> int:
    """How many launches a sample takes; for cold ones there are as many sets of arguments."""
    if sets.first.accumulates or single_ms >= _INTERVAL_MS / 2:
        return 1
    wanted = min(_MOST_LAUNCHES, math.ceil(_INTERVAL_MS / max(single_ms, 1e-6)))
    return sets.provide(wanted) if cold else wanted


def _mean(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _note(samples: Sequence[float], busy: NvmlReadings, after: NvmlReadings) -> str:
    """What a reader of the times should know: a held-down clock, a drift, readings that are missing."""
    notes = []
    if reasons := sorted({*slow_down_reasons(busy), *slow_down_reasons(after)}):
        notes.append(f"clock held down: {', '.join(reasons)}")
    trend = drift(samples)
    if trend.significant and abs(trend.change) > 0.01:
        notes.append(f"times drift by {trend.change:+.1%}")
    if busy.note:
        notes.append(busy.note)
    return "; ".join(notes)
