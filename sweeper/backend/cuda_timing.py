"""Timing of launches by CUDA events on the one stream.

One sample is what lies between two events, and all of it is queued while the device is still busy:

    stream   … │ flush │ spin │ start │ launch × batch │ stop │

`flush` overwrites twice the L2 cache (`cold`), or is an untimed launch (`warm`). `spin` keeps the
device busy while the host queues the rest; if the device reaches `start` before the host is done, the
launch path itself would be inside the interval, so the sample is thrown away and the spin doubled.

Short kernels are timed in batches, so that the events' own cost is spread. A cold batch gives every
launch its own copy of the arrays, all flushed beforehand: each finds its data in memory, not in L2.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from sweeper.backend.base import MeasureProtocol
from sweeper.backend.cuda_device import CudaDevice
from sweeper.backend.cuda_memory import Arguments, allocated_bytes
from sweeper.backend.cuda_ptx import EMPTY, SPIN
from sweeper.backend.cuda_verify import Launcher
from sweeper.device.nvml import NvmlReadings, slow_down_reasons
from sweeper.errors import TrialFailed
from sweeper.model import Stage, Status, Timing
from sweeper.statistics import StoppingRule, drift

__all__ = ["Timer"]

Queue = Callable[[], None]

# An interval shorter than this is filled with several launches: two events cost about 1 µs.
_INTERVAL_MS = 0.1
_MOST_LAUNCHES = 32
_LEAST_SPIN_MS = 0.05
_MOST_SPIN_MS = 20.0
_SPIN_DECAY = 0.95
_LEAST_FLUSH_BYTES = 1 << 24
_MOST_WARMUPS = 20_000
# Copies for cold batches take at most this share of the memory that is free.
_COPIES_SHARE = 0.25
# A kernel must take this many times as long as an empty one for its time to say anything.
_FLOOR_FACTOR = 1.1


class Timer:
    """Times launches on one set of arguments and its copies; kept while the problem stays the same."""

    def __init__(self, device: CudaDevice, arguments: Arguments, *, l2_bytes: int, clock_mhz: float) -> None:
        drv = device.drv
        self._device = device
        self._sets = [arguments]
        self._flush_bytes = max(2 * l2_bytes, _LEAST_FLUSH_BYTES)
        self._flush_buffer = device.allocate(self._flush_bytes)
        self._clock_khz = clock_mhz * 1e3
        self._spin = device.ptx.get_function(SPIN).prepare(["Q"])
        self._empty = device.ptx.get_function(EMPTY).prepare([])
        self._spin_ms = _LEAST_SPIN_MS
        self._start, self._stop = drv.Event(), drv.Event()
        self._floors: dict[int, float] = {}
        self._flushes = 0

    def measure(self, launch: Launcher, protocol: MeasureProtocol) -> tuple[Timing, NvmlReadings]:
        """Samples of `launch` in milliseconds a launch, after a warm-up of at least one launch.

        The readings are those right after the last sample. Raises TrialFailed: `unstable` where the
        kernel cannot be told from an empty one.
        """
        with self._device.doing(Stage.MEASURE):
            cold = protocol.cache == "cold"
            self._queue(launch, 0)()
            single_ms = self._sample([self._queue(launch, 0)], cold=cold)
            batch = self._batch(single_ms, cold=cold)
            queues = [self._queue(launch, n if cold else 0) for n in range(batch)]
            busy = self._warm_up(queues[0], protocol.warmup_ms, single_ms)
            samples = self._samples(queues, protocol, cold=cold)
            after = self._device.readings()
            self._require_above_floor(samples, batch)
        timing = Timing(
            samples_ms=tuple(samples),
            method="events" if batch == 1 else f"events×{batch}",
            cache=protocol.cache,
            sm_clock_mhz=_mean(busy.sm_clock_mhz, after.sm_clock_mhz),
            memory_clock_mhz=busy.memory_clock_mhz,
            power_w=busy.power_w,
            temperature_c=after.temperature_c,
            note=_note(samples, busy, after),
        )
        return timing, after

    def _queue(self, launch: Launcher, number: int) -> Queue:
        """A launch on the set of arguments of that number."""
        arguments = self._sets[number]
        return lambda: launch(arguments)

    def _batch(self, single_ms: float, *, cold: bool) -> int:
        """How many launches a sample takes; for cold ones there are as many sets of arguments."""
        if self._sets[0].accumulates or single_ms >= _INTERVAL_MS / 2:
            return 1
        wanted = min(_MOST_LAUNCHES, math.ceil(_INTERVAL_MS / max(single_ms, 1e-6)))
        return self._copies(wanted) if cold else wanted

    def _copies(self, wanted: int) -> int:
        """Copy the arguments until there are `wanted` sets, as far as the memory allows; how many there are."""
        room = int(self._device.memory()[0] * _COPIES_SHARE) // allocated_bytes(self._sets[0].problem)
        for _ in range(min(wanted - len(self._sets), room)):
            try:
                self._sets.append(self._sets[0].copy())
            except TrialFailed:
                break
        return min(wanted, len(self._sets))

    def _warm_up(self, queue: Queue, warmup_ms: float, each_ms: float) -> NvmlReadings:
        """Launch for `warmup_ms` of the device's time; the readings are taken while it is busy."""
        launches = math.ceil(warmup_ms / max(each_ms, 1e-6))
        for _ in range(max(1, min(launches, _MOST_WARMUPS))):
            queue()
        readings = self._device.readings()
        self._device.synchronize()
        return readings

    def _samples(self, queues: Sequence[Queue], protocol: MeasureProtocol, *, cold: bool) -> list[float]:
        rule = StoppingRule(
            min_samples=protocol.min_samples,
            max_samples=protocol.max_samples,
            max_seconds=protocol.max_seconds,
            relative_width=protocol.relative_width,
        )
        samples: list[float] = []
        began = time.monotonic()
        # A kernel so slow that its least samples would run into the deadline gives the samples it can.
        while not rule.stop(elapsed := time.monotonic() - began):
            if samples and elapsed > protocol.deadline_s / 4:
                break
            samples.append(self._sample(queues, cold=cold) / len(queues))
            rule.add(samples[-1])
        return samples

    def _sample(self, queues: Sequence[Queue], *, cold: bool) -> float:
        """Milliseconds between the events around `queues`, all queued while the device was busy."""
        stream = self._device.stream
        while True:
            self._prepare_cache(queues[0], cold=cold)
            self._pause(self._spin_ms)
            self._start.record(stream)
            for queue in queues:
                queue()
            self._stop.record(stream)
            late = self._start.query()
            self._stop.synchronize()
            if not late or self._spin_ms >= _MOST_SPIN_MS:
                # One stall of the host must not slow every later sample.
                self._spin_ms = max(_SPIN_DECAY * self._spin_ms, _LEAST_SPIN_MS)
                return float(self._stop.time_since(self._start))
            self._spin_ms = min(2 * self._spin_ms, _MOST_SPIN_MS)

    def _prepare_cache(self, queue: Queue, *, cold: bool) -> None:
        self._sets[0].refill()
        if cold:
            self._flushes += 1
            self._device.drv.memset_d8_async(
                int(self._flush_buffer), self._flushes % 256, self._flush_bytes, self._device.stream
            )
        elif not self._sets[0].accumulates:
            queue()

    def _pause(self, milliseconds: float) -> None:
        cycles = int(milliseconds * self._clock_khz)
        self._spin.prepared_async_call((1, 1), (1, 1, 1), self._device.stream, cycles)

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
            queues = [self._launch_nothing] * batch
            self._floors[batch] = min(self._sample(queues, cold=True) for _ in range(5)) / batch
        return self._floors[batch]

    def _launch_nothing(self) -> None:
        self._empty.prepared_async_call((1, 1), (1, 1, 1), self._device.stream)


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
