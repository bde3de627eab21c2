"""Timing of launches by CUDA events on the one stream: how many samples are taken, and which of them count.

What one sample is made of says `plan`, how it is taken `sampler`, and whether it was taken at the clock of
the run `steady`. Cold and warm samples are never mixed: where both are asked for, one series follows the
other.

The clock is warm once the device has worked for `warmup_ms` without a rest, whatever it worked at: in the
midst of a sweep that is so from the start, and the verified launches have been this kernel's own first.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median

from sweeper.backend.base import MeasureProtocol
from sweeper.backend.cuda.arguments import ArgumentSets
from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.early_stop import lower_bound, surely_above
from sweeper.backend.cuda.floor import Floors
from sweeper.backend.cuda.graph import GraphError, Graphs
from sweeper.backend.cuda.phases import Phases
from sweeper.backend.cuda.plan import INTERVAL_MS, Plan, Planner
from sweeper.backend.cuda.sampler import Queue, Sample, Sampler
from sweeper.backend.cuda.steady import Series, Steadiness, Verdict
from sweeper.backend.cuda.verification import Launcher
from sweeper.device.nvml import NvmlReadings, slow_down_reasons
from sweeper.model import Stage, Timing
from sweeper.statistics import StoppingRule, drift

__all__ = ["Timer"]

# A verified launch this long is estimate enough: it is timed by itself.
_LONG_MS = 2 * INTERVAL_MS
_MOST_WARMUPS = 20_000
# What the device is given to do while NVML is asked how it does.
_READING_MS = 3.0
# A block's median: an odd number, so that it is one of them.
_BLOCK_SAMPLES = 5


class Timer:
    """Times launches on one device; kept while it is open, with what it has learnt of the device's clock.

    Raises TrialFailed where there is no memory for the buffer that flushes the L2 cache.
    """

    def __init__(self, device: CudaDevice, *, l2_bytes: int) -> None:
        self._device = device
        self._sampler = Sampler(device, l2_bytes=l2_bytes)
        self._graphs = Graphs(int(device.stream.handle))
        self._planner = Planner(device, self._graphs, self._sampler.flush_cache, l2_bytes=l2_bytes)
        self._steadiness = Steadiness()
        self._floors = Floors(self._planner, self._sampler)
        self._users: set[int] = set()

    def measure(
        self,
        launch: Launcher,
        sets: ArgumentSets,
        protocol: MeasureProtocol,
        phases: Phases,
        expected_ms: float | None,
    ) -> tuple[Timing, NvmlReadings]:
        """Samples of `launch` in milliseconds a launch; `expected_ms` is what a verified one took, if known.

        The readings are those after the last sample, with every process that was seen meanwhile. Raises
        TrialFailed: `unstable` where the kernel cannot be told from an empty one.
        """
        self._users.clear()
        with self._measuring():
            with phases("warmup"):
                single_ms = self._single_ms(launch, sets, protocol, expected_ms)
                self._warm_up(self._planner.single(launch, sets, "warm").queue, protocol.warmup_ms, single_ms)
            with phases("measure"):
                timings = []
                for cache in ("cold", "warm") if protocol.cache == "both" else (protocol.cache,):
                    with self._planner.plan(launch, sets, cache, protocol, single_ms) as plan:
                        timings.append(self._timing(plan, protocol, single_ms))
                    if timings[-1].stopped_by == "early":
                        break
                after = self._device.monitor.readings()
                after = replace(after, processes=tuple(sorted({*(after.processes or ()), *self._users})))
        first, *others = timings
        return replace(first, beside=others[0] if others else None), after

    def block(
        self, launch: Launcher, sets: ArgumentSets, protocol: MeasureProtocol, expected_ms: float | None
    ) -> float:
        """One block for a comparison: the median of a few samples of `launch`, in milliseconds a launch.

        Taken as `measure` takes its samples, cold unless the protocol says warm; the device is warmed up only
        where it has rested. Blocks of several launchers in turns are what `paired_log_ratio` compares.
        """
        cache = "warm" if protocol.cache == "warm" else "cold"
        with self._measuring():
            single_ms = self._single_ms(launch, sets, protocol, expected_ms)
            self._warm_up(self._planner.single(launch, sets, "warm").queue, protocol.warmup_ms, single_ms)
            with self._planner.plan(launch, sets, cache, protocol, single_ms) as plan:
                return median(self._take(plan).elapsed_ms for _ in range(_BLOCK_SAMPLES)) / plan.launches

    @contextlib.contextmanager
    def _measuring(self) -> Iterator[None]:
        """Translate the driver's errors into the failure of one configuration."""
        try:
            with self._device.doing(Stage.MEASURE):
                yield
        except GraphError as error:
            raise self._device.failure(error, Stage.MEASURE) from None

    def _take(self, plan: Plan, glance: Queue | None = None) -> Sample:
        return self._sampler.take(plan.queue, plan.ready, flushes=plan.flushes, glance=glance)

    def _single_ms(
        self, launch: Launcher, sets: ArgumentSets, protocol: MeasureProtocol, expected_ms: float | None
    ) -> float:
        """About how long one launch takes."""
        if expected_ms is not None and expected_ms >= _LONG_MS:
            return expected_ms
        cache = "warm" if protocol.cache == "warm" else "cold"
        return self._take(self._planner.single(launch, sets, cache)).elapsed_ms

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

    def _timing(self, plan: Plan, protocol: MeasureProtocol, single_ms: float) -> Timing:
        """A series of samples as planned. Raises TrialFailed where they say nothing."""
        series = self._steadiness.series(protocol.clock_tolerance, protocol.recovery_s, protocol.min_samples)
        glances: list[NvmlReadings] = []
        rule, stopped = self._samples(plan, protocol, series, glances, long=single_ms >= _READING_MS)
        series.end()
        self._floors.require_above(series.times_ms, plan)
        busy = self._device.monitor.latest
        reasons = sorted({reason for seen in (*glances, busy) for reason in slow_down_reasons(seen)})
        notes = [_of_stop(series.times_ms, rule, stopped), _of_drift(series.times_ms), series.note]
        notes += [f"clock held down: {', '.join(reasons)}" if reasons else "", busy.note, plan.note]
        return Timing(
            samples_ms=tuple(series.times_ms),
            method=plan.method,
            cache=plan.cache,
            sm_clock_mhz=_rounded(series.clock_mhz) or _mean(seen.sm_clock_mhz for seen in glances),
            memory_clock_mhz=_mean(seen.memory_clock_mhz for seen in glances),
            power_w=_mean(seen.power_w for seen in glances),
            temperature_c=glances[-1].temperature_c,
            note="; ".join(filter(None, notes)),
            stopped_by=stopped,
            discarded=series.discarded,
            locked="" if protocol.lock_clocks is None else str(protocol.lock_clocks),
        )

    def _samples(
        self,
        plan: Plan,
        protocol: MeasureProtocol,
        series: Series,
        glances: list[NvmlReadings],
        *,
        long: bool,
    ) -> tuple[StoppingRule, str]:
        """Take samples into `series`; the rule with all that count, and what ended them.

        While the device is at work on one, NVML is glanced at. Readings that are due are taken during a
        `long` kernel, or in the midst of short ones.
        """
        rule = _rule(protocol)
        limit_ms, monitor = protocol.stop_above_ms, self._device.monitor

        def glance() -> None:
            glances.append(monitor.glance())
            if long or series.times_ms:
                self._users.update(monitor.readings().processes or ())

        began = time.monotonic()
        while not rule.stop(elapsed := time.monotonic() - began - series.rested_s):
            # A kernel so slow that its least samples would run into the deadline gives the samples it can.
            if series.times_ms and elapsed > protocol.deadline_s / 4:
                return rule, "deadline"
            sample = self._take(plan, glance)
            verdict = series.add(sample.elapsed_ms / plan.launches, sample, glances[-1])
            if series.over:
                return rule, "clock"
            if verdict is Verdict.AFRESH:
                rule = _rule(protocol)
            for time_ms in series.times_ms[rule.count :]:
                rule.add(time_ms)
            if limit_ms is not None and surely_above(limit_ms, series.times_ms):
                return rule, "early"
        return rule, rule.reason


def _rule(protocol: MeasureProtocol) -> StoppingRule:
    return StoppingRule(
        min_samples=protocol.min_samples,
        max_samples=protocol.max_samples,
        max_seconds=protocol.max_seconds,
        relative_width=protocol.relative_width,
        criterion=protocol.stopping,
        entropy_bits=protocol.entropy_bits,
    )


def _rounded(clock_mhz: float | None) -> float | None:
    """To what the events' resolution can tell."""
    return None if clock_mhz is None else round(clock_mhz, 1)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _of_stop(samples: Sequence[float], rule: StoppingRule, stopped: str) -> str:
    """Why there are no more samples than these, where they are fewer than the criterion asks for."""
    if stopped == "early":
        return f"stopped early: at least {lower_bound(samples):.4g} ms"
    return "" if stopped in ("precise", "entropy", "both") else f"stopped at {stopped}: {rule.unmet}"


def _of_drift(samples: Sequence[float]) -> str:
    trend = drift(samples)
    return f"times drift by {trend.change:+.1%}" if trend.significant and abs(trend.change) > 0.01 else ""
