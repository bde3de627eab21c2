"""What is done with everything that is loaded: prove it right, time it, prove it again, and mend what it broke."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from sweeper.backend.base import MeasureProtocol
from sweeper.backend.cuda.arguments import ArgumentSets
from sweeper.backend.cuda.cublas_race import LONG_GLANCE_MS, glance_protocol, seen_ms
from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.energy import measure_energy
from sweeper.backend.cuda.judge import Judge
from sweeper.backend.cuda.phases import Phases
from sweeper.backend.cuda.timing import Timer
from sweeper.backend.cuda.transfers import Transfers
from sweeper.backend.cuda.trip import HostArrays, Trip
from sweeper.backend.cuda.trip_timing import trip_timing
from sweeper.backend.cuda.verification import Launcher, Verification
from sweeper.device.nvml import NvmlReadings
from sweeper.errors import TrialFailed
from sweeper.model import Check, KernelSpec, Stage, Timing
from sweeper.problem import Problem

__all__ = ["Prepared", "Prover"]


@dataclass(slots=True)
class Prepared:
    """What stays on the device from one configuration to the next; a `judge` may come with the first.

    `transfers` are the problem's copies, once they were timed; `hosts` the host's own arrays, pinned and not.
    """

    spec: KernelSpec
    problem: Problem
    sets: ArgumentSets
    judge: Judge | None = None
    transfers: Transfers | None = None
    hosts: dict[bool, HostArrays] = field(default_factory=dict)

    def serves(self, spec: KernelSpec, problem: Problem) -> bool:
        """Whether these arrays, and what is right, are those of `problem`, which is another kernel's."""
        rules = [(s.reference, s.tolerance, s.trip) for s in (self.spec, spec)]
        whole = spec.reference.kind == "contraction" and self.judge is not None
        return whole and rules[0] == rules[1] and self.problem.key == problem.key

    def at(self, problem: Problem) -> Prepared:
        """The same arrays with the scalars and scratch of `problem`, which a configuration has for itself."""
        return replace(self, problem=problem, sets=self.sets.at(problem))

    def host(self, device: CudaDevice, *, pinned: bool) -> HostArrays:
        """The problem's arrays on the host. Raises TrialFailed where it has no room for pinned ones."""
        if pinned not in self.hosts:
            self.hosts[pinned] = HostArrays(device, self.sets.first, pinned=pinned)
        return self.hosts[pinned]


class Prover:
    """Proves and times what is launched on one device; its methods raise TrialFailed and SetupError."""

    def __init__(self, device: CudaDevice, timer: Timer) -> None:
        self._device = device
        self._timer = timer

    def prove_and_time(
        self,
        prepared: Prepared,
        judge: Judge,
        way: Launcher | Trip,
        protocol: MeasureProtocol,
        phases: Phases,
    ) -> tuple[Check, Timing, str]:
        """The first check, the times, and what a reader should know of them."""
        verification = self.verification(prepared, judge, way)
        with self.healing(judge):
            with phases("verify"):
                check = verification.before_timing(protocol.verify_launches)
            if isinstance(way, Trip):
                timing, shared = self._time(lambda: trip_timing(self._device, way, protocol, phases))
            else:
                known_ms = verification.launch_ms
                timing, shared = self._time(
                    lambda: self._timer.measure(way, prepared.sets, protocol, phases, known_ms)
                )
                if protocol.objective != "time":
                    with phases("energy"):
                        timing = self._with_energy(timing, way, prepared, protocol)
            with phases("finish"):
                verification.after_timing()
        changing = "" if protocol.allow_nondeterministic else verification.note
        return check, timing, "; ".join(filter(None, (changing, shared)))

    def _with_energy(
        self, timing: Timing, run: Launcher, prepared: Prepared, protocol: MeasureProtocol
    ) -> Timing:
        each_ms = statistics.median(timing.samples_ms)
        first, seconds = prepared.sets.first, protocol.energy_seconds
        return replace(timing, energy=measure_energy(self._device, run, first, each_ms, seconds))

    def verification(self, prepared: Prepared, judge: Judge, way: Launcher | Trip) -> Verification:
        """What proves the launches, or the trips, of `way` by `judge`."""
        run = way.prove if isinstance(way, Trip) else way
        return Verification(self._device, prepared.sets.first, judge.comparison, judge.watch, run)

    def glance(
        self, prepared: Prepared, judge: Judge, run: Launcher, protocol: MeasureProtocol, phases: Phases
    ) -> float:
        """About how many milliseconds a launch takes that was proved right once."""
        verification = self.verification(prepared, judge, run)
        with self.healing(judge):
            with phases("verify"):
                known_ms = seen_ms(verification)
            if known_ms is not None and known_ms >= LONG_GLANCE_MS:
                return known_ms
            few = glance_protocol(protocol)
            timing, _ = self._timer.measure(run, prepared.sets, few, phases, known_ms)
        return statistics.median(timing.samples_ms)

    @contextlib.contextmanager
    def healing(self, judge: Judge) -> Iterator[None]:
        """Leave the device as it was for the next configuration where this one fails."""
        try:
            yield
        except TrialFailed as failure:
            self._device.monitor.require_sound(self._device.monitor.readings(fresh=True))
            if not failure.details.get("sticky"):
                self._heal(judge, failure)
            raise

    def _heal(self, judge: Judge, failure: TrialFailed) -> None:
        """Undo what a failed configuration did to memory; where that cannot be, the process must end."""
        with self._device.doing(Stage.VERIFY):
            lost = judge.watch.heal()
        if lost:
            reason = f"{failure.reason}; it wrote into {' and '.join(lost)}"
            details = {**failure.details, "sticky": True}
            raise TrialFailed(failure.status, failure.stage, reason, details=details) from failure

    def _time(self, measure: Callable[[], tuple[Timing, NvmlReadings]]) -> tuple[Timing, str]:
        """Time it, once more if somebody else came to the device meanwhile. Raises SetupError for its faults."""
        monitor = self._device.monitor
        timing, readings = measure()
        if monitor.strangers(readings):
            timing, _ = measure()
            readings = monitor.readings(fresh=True)
        monitor.require_sound(readings)
        strangers = ", ".join(map(str, monitor.strangers(readings)))
        return timing, f"timed while others used the GPU: process {strangers}" if strangers else ""
