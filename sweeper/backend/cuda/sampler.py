"""One sample: what lies between two events, all of it queued while the device is still busy.

    stream   … │ ready │ mark │ spin │ start │ what is timed │ stop │

`ready` brings the cache and the arrays into the state in which a sample begins. `spin` keeps the device
busy while the host queues the rest; if the device reaches `start` before the host is done, the launch path
itself would be inside the interval, so the sample is thrown away and the spin doubled.

The spin goes on for a known number of cycles, so the time from `mark` to `start` also says at what clock
the device runs at that very moment, without a question to anybody.

Two events with nothing between them are some time apart as well (1.3 µs on an H200). That is measured once and
taken off every sample: what is left of one launch agrees with the profiler's duration of the kernel.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from sweeper.backend.cuda.device import CudaDevice

__all__ = ["Queue", "Sample", "Sampler"]

Queue = Callable[[], object]
"""Queues work on the device's stream."""

_LEAST_SPIN_MS = 0.05
_MOST_SPIN_MS = 20.0
_SPIN_DECAY = 0.95
_LEAST_FLUSH_BYTES = 1 << 24
# A flush this large outlasts the queueing of the spin behind it.
_LONG_FLUSH_BYTES = 1 << 26
# What comes before any other `ready`, to the same end.
_LEAD_MS = 0.02
_CALIBRATIONS = 9


@dataclass(frozen=True, slots=True)
class Sample:
    """Milliseconds between two events, less what they are apart with nothing between them, and the SM clock
    just before; None where it is not known."""

    elapsed_ms: float
    clock_mhz: float | None = None


class Sampler:
    """Takes samples on one device, with the buffer that flushes its L2 cache.

    `spin_ms` is how long the device is kept busy at present. Raises TrialFailed where there is no memory
    for the buffer; its methods may raise PyCUDA's errors.
    """

    def __init__(self, device: CudaDevice, *, l2_bytes: int) -> None:
        self._device = device
        self._flush_bytes = max(2 * l2_bytes, _LEAST_FLUSH_BYTES)
        self._flush_buffer = device.allocate(self._flush_bytes)
        self._flushes = 0
        self._spin_ms = _LEAST_SPIN_MS
        self._spin_cost_ms = self._event_cost_ms = math.nan

    def flush_cache(self) -> None:
        """Queue writes over twice the L2 cache."""
        self._flushes += 1
        address, value = int(self._flush_buffer), self._flushes % 256
        self._device.drv.memset_d8_async(address, value, self._flush_bytes, self._device.stream)

    def take(self, queue: Queue, ready: Queue, *, flushes: bool, glance: Queue | None = None) -> Sample:
        """Milliseconds that what `queue` queues takes, after `ready`, which flushes the cache or not.

        `glance` is called while the device is at work.
        """
        if math.isnan(self._event_cost_ms):
            self._calibrate()
        watch = self._device.stopwatch
        while True:
            self._lead(flushes)
            ready()
            watch.mark()
            cycles = self._device.pause(self._spin_ms)
            watch.start()
            paused_late = watch.marked
            queue()
            watch.stop()
            late = watch.started
            if glance is not None:
                glance()
            elapsed_ms = watch.wait_ms()
            self._device.heat.add(elapsed_ms + self._spin_ms)
            if not late or self._spin_ms >= _MOST_SPIN_MS:
                # One stall of the host must not slow every later sample.
                self._spin_ms = max(_SPIN_DECAY * self._spin_ms, _LEAST_SPIN_MS)
                net_ms = max(0.0, elapsed_ms - self._event_cost_ms)
                return Sample(net_ms, None if paused_late else self._clock_mhz(cycles))
            self._spin_ms = min(2 * self._spin_ms, _MOST_SPIN_MS)

    def _lead(self, flushes: bool) -> None:
        if not flushes or self._flush_bytes < _LONG_FLUSH_BYTES:
            self._device.pause(_LEAD_MS)

    def _clock_mhz(self, cycles: int) -> float | None:
        spun_ms = self._device.stopwatch.lead_ms() - self._spin_cost_ms
        return cycles / spun_ms / 1e3 if spun_ms > 0 else None

    def _calibrate(self) -> None:
        """Measure what two events read with nothing between them, and with a spin of no cycles."""
        watch, lead_ms = self._device.stopwatch, _LEAST_SPIN_MS
        nothing: list[float] = []
        spins: list[float] = []
        while len(nothing) < _CALIBRATIONS:
            self._device.pause(lead_ms)
            watch.mark()
            self._device.pause(0.0)
            watch.start()
            watch.stop()
            late = watch.marked
            apart_ms = watch.wait_ms()
            if late and lead_ms < _MOST_SPIN_MS:
                lead_ms = min(2 * lead_ms, _MOST_SPIN_MS)
            else:
                nothing.append(apart_ms)
                spins.append(watch.lead_ms())
        self._event_cost_ms, self._spin_cost_ms = statistics.median(nothing), statistics.median(spins)
