"""Times of whole trips on the host's clock: until the last byte is back, nothing else counts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from sweeper.backend.base import MeasureProtocol
from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.early_stop import lower_bound, surely_above
from sweeper.backend.cuda.phases import Phases
from sweeper.backend.cuda.trip import Trip
from sweeper.device.nvml import NvmlReadings
from sweeper.model import Stage, Timing
from sweeper.statistics import StoppingRule, drift

__all__ = ["trip_block", "trip_timing"]

_BLOCK_SAMPLES = 5


def trip_timing(
    device: CudaDevice, trip: Trip, protocol: MeasureProtocol, phases: Phases
) -> tuple[Timing, NvmlReadings]:
    """Samples of `trip` in milliseconds, as many as the protocol asks for, and the readings after the last.

    A trip begins on an idle device, as a program's does, so there is no warm-up but one untimed trip, and no
    state of the cache to bring about: what is read has just been copied. Raises TrialFailed.
    """
    rule = _rule(protocol)
    samples: list[float] = []
    with device.doing(Stage.MEASURE):
        with phases("warmup"):
            trip.run()
        with phases("measure"):
            stopped = _take(trip, protocol, rule, samples)
            device.heat.add(samples[-1])
            readings = device.monitor.readings()
    timing = Timing(
        samples_ms=tuple(samples),
        method="host clock",
        cache="cold" if protocol.cache == "both" else protocol.cache,
        sm_clock_mhz=readings.sm_clock_mhz,
        memory_clock_mhz=readings.memory_clock_mhz,
        power_w=readings.power_w,
        temperature_c=readings.temperature_c,
        note="; ".join(filter(None, (trip.note, _note(samples, stopped, rule)))),
        stopped_by=stopped,
    )
    return timing, readings


def trip_block(device: CudaDevice, trip: Trip) -> float:
    """One block for a comparison: the median of a few trips, in milliseconds."""
    with device.doing(Stage.MEASURE):
        return median(trip.timed_ms() for _ in range(_BLOCK_SAMPLES))


def _take(trip: Trip, protocol: MeasureProtocol, rule: StoppingRule, samples: list[float]) -> str:
    """Take samples until the rule, the deadline or a hopeless time ends it; which of them did."""
    limit_ms, began = protocol.stop_above_ms, time.monotonic()
    while not rule.stop(elapsed := time.monotonic() - began):
        if samples and elapsed > protocol.deadline_s / 4:
            return "deadline"
        samples.append(trip.timed_ms())
        rule.add(samples[-1])
        if limit_ms is not None and surely_above(limit_ms, samples):
            return "early"
    return rule.reason


def _rule(protocol: MeasureProtocol) -> StoppingRule:
    return StoppingRule(
        min_samples=protocol.min_samples,
        max_samples=protocol.max_samples,
        max_seconds=protocol.max_seconds,
        relative_width=protocol.relative_width,
        criterion=protocol.stopping,
        entropy_bits=protocol.entropy_bits,
    )


def _note(samples: Sequence[float], stopped: str, rule: StoppingRule) -> str:
    notes = []
    if stopped == "early":
        notes.append(f"stopped early: at least {lower_bound(samples):.4g} ms")
    elif stopped not in ("precise", "entropy", "both"):
        notes.append(f"stopped at {stopped}: {rule.unmet}")
    trend = drift(samples)
    if trend.significant and abs(trend.change) > 0.01:
        notes.append(f"times drift by {trend.change:+.1%}")
    return "; ".join(notes)
