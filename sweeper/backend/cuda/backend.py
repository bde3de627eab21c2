"""The CUDA backend: load a cubin through PyCUDA, launch it, prove it right, time it."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sweeper.backend.base import MeasureProtocol, Outcome
from sweeper.backend.cuda.arguments import Arguments, ArgumentSets, allocated_bytes
from sweeper.backend.cuda.cublas import Cublas, gemm_of, neutral_environment
from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.driver_api import find_device, wake
from sweeper.backend.cuda.identity import claim
from sweeper.backend.cuda.judge import Judge, judge_by, judge_of
from sweeper.backend.cuda.kernel import LoadedKernel, load_kernel, plain_kernel
from sweeper.backend.cuda.monitor import READINGS_EVERY_S
from sweeper.backend.cuda.phases import Phases
from sweeper.backend.cuda.reference_cache import ReferenceCache
from sweeper.backend.cuda.timing import Timer
from sweeper.backend.cuda.verification import Launcher, Verification
from sweeper.device import DeviceIdentity, Target, from_query
from sweeper.device.nvml import Nvml
from sweeper.errors import ConfigError, KernelError, SetupError, TrialFailed
from sweeper.model import Build, Check, KernelSpec, Launch, Point, Stage, Timing
from sweeper.problem import Problem

__all__ = ["CudaBackend"]

_LIBRARIES = ("cublas",)


@dataclass(slots=True)
class _Prepared:
    """What stays on the device from one configuration to the next; a `judge` may come with the first."""

    spec: KernelSpec
    problem: Problem
    sets: ArgumentSets
    judge: Judge | None = None


class CudaBackend:
    """Runs kernels on one GPU, which this process owns until `close`.

    `scratch` is a folder in which references outlive the process; `allow_shared` lets it use a GPU that
    other processes are on; `nvml` takes the place of the real readings in tests, which are taken at most
    every `readings_every_s` seconds.
    """

    name = "cuda"

    def __init__(
        self,
        *,
        scratch: Path | None = None,
        allow_shared: bool = False,
        nvml: Nvml | None = None,
        readings_every_s: float = READINGS_EVERY_S,
    ) -> None:
        self._references = ReferenceCache(scratch)
        self._allow_shared = allow_shared
        self._nvml = nvml or Nvml()
        self._readings_every_s = readings_every_s
        self._opened: tuple[CudaDevice, Target] | None = None
        self._prepared: _Prepared | None = None
        self._timer: Timer | None = None
        self._claimed: tuple[int | None] | None = None
        self._cublas: Cublas | None = None

    def identify(self, device: int, target: str | None) -> tuple[Target, DeviceIdentity]:
        """Claim the GPU number `device` and say what it is; its context is made meanwhile.

        Takes a fraction of the time of `open`, which has to follow. Raises SetupError as `open` does.
        """
        del target
        neutral_environment()
        found = find_device(device)
        self._claimed = (None if self._allow_shared else claim(device, found.pci_bus_id, self._nvml),)
        wake(device)
        clock = self._nvml.readings(found.pci_bus_id).max_sm_clock_mhz
        limits = from_query(
            found.attributes,
            name=found.name,
            memory_bytes=found.memory_bytes,
            max_clock_mhz=int(clock) if clock else None,
        )
        identity = DeviceIdentity(
            name=found.name,
            uuid=found.uuid,
            pci_bus_id=found.pci_bus_id,
            driver=self._nvml.driver_version() or "",
            cuda_driver=f"{found.cuda_version // 1000}.{found.cuda_version % 1000 // 10}",
            memory_bytes=found.memory_bytes,
            index=device,
        )
        return limits, identity

    def open(self, device: int, target: str | None) -> tuple[Target, DeviceIdentity]:
        """Take the GPU number `device`; its limits are its own, whatever `target` says."""
        del target
        neutral_environment()
        opened = CudaDevice(
            device,
            self._nvml,
            allow_shared=self._allow_shared,
            readings_every_s=self._readings_every_s,
            claimed=self._claimed,
        )
        self._claimed = None
        limits = opened.target()
        self._opened = opened, limits
        return limits, opened.identity()

    @property
    def _device(self) -> CudaDevice:
        if self._opened is None:
            raise SetupError("the CUDA device is not open")
        return self._opened[0]

    @property
    def _target(self) -> Target:
        if self._opened is None:
            raise SetupError("the CUDA device is not open")
        return self._opened[1]

    def canary(self) -> None:
        """Prove that the device still computes. Raises SetupError."""
        self._device.canary()

    def prepare(self, spec: KernelSpec, problem: Problem) -> None:
        """Fill the device with the problem's arrays and what is right.

        Raises TrialFailed (out of memory) before anything is computed where it cannot fit.
        """
        self._prepared = None
        gc.collect()
        device = self._device
        with device.doing(Stage.LOAD):
            device.require_memory(allocated_bytes(problem))
            self._ready_timer()
            inputs = problem.inputs()
            arguments = Arguments(device, problem, inputs)
            arguments.restore()
            prepared = _Prepared(spec, problem, ArgumentSets(device, arguments))
            if spec.reference.kind != "kernel":
                prepared.judge = judge_of(device, arguments, inputs, self._references)
            device.synchronize()
        device.monitor.know_users()
        self._prepared = prepared

    def _ready_timer(self) -> Timer:
        if self._timer is None:
            self._timer = Timer(self._device, l2_bytes=self._target.l2_bytes)
        return self._timer

    def _ready(self) -> _Prepared:
        if self._prepared is None:
            raise SetupError("no problem is prepared on the CUDA device")
        return self._prepared

    def measure(self, point: Point, launch: Launch, build: Build, protocol: MeasureProtocol) -> Outcome:
        """Load, launch, verify and time one configuration. Raises TrialFailed, SetupError."""
        prepared, phases = self._ready(), Phases()
        with _told(phases):
            with phases("load"):
                kernel = load_kernel(self._device, self._target, build, launch)
                if prepared.judge is None:
                    prepared.judge = self._judge_by_plain_kernel(prepared, kernel, point)
                run = kernel.launcher(prepared.sets.first)
            check, timing, note = self._prove_and_time(prepared, prepared.judge, run, protocol, phases)
        return Outcome(check, kernel.build, kernel.launch, timing, note, phases.seconds)

    def baseline(self, library: str, protocol: MeasureProtocol) -> Outcome:
        """cuBLAS's answer to the prepared problem. Raises TrialFailed where it has none."""
        if library not in _LIBRARIES:
            raise ConfigError(f"unknown baseline library {library!r}", hint=f"known: {', '.join(_LIBRARIES)}")
        prepared, phases = self._ready(), Phases()
        with _told(phases):
            with phases("load"):
                gemm = gemm_of(prepared.problem)
                if self._cublas is None:
                    self._cublas = Cublas(int(self._device.stream.handle))
            if prepared.judge is None:
                raise AssertionError("a matrix product is judged by its contraction")
            cublas = self._cublas

            def run(arguments: Arguments) -> None:
                a, b, c = (arguments.arrays[name].pointer for name in (gemm.a, gemm.b, gemm.c))
                cublas.run(gemm, a, b, c)

            check, timing, note = self._prove_and_time(prepared, prepared.judge, run, protocol, phases)
        notes = [cublas.describe(gemm), note]
        return Outcome(check, None, None, timing, "; ".join(filter(None, notes)), phases.seconds)

    def close(self) -> None:
        """Give the device back; nothing to do where it was not open."""
        self._prepared = self._timer = None
        if self._cublas is not None:
            self._cublas.close()
            self._cublas = None
        if self._opened is not None:
            self._opened[0].close()
            self._opened = None
        self._nvml.close()

    def _judge_by_plain_kernel(self, prepared: _Prepared, kernel: LoadedKernel, point: Point) -> Judge:
        """By what the plain kernel of the same source computes, one thread a work item."""
        spec, arguments = prepared.spec, prepared.sets.first
        with self._device.doing(Stage.VERIFY):
            run = plain_kernel(kernel, spec, point, self._target, arguments)
            arguments.reset()
            run(arguments)
            self._device.synchronize()
            results = arguments.outputs()
            if not all(np.isfinite(data.astype(np.float64)).all() for data in results.values()):
                name = spec.reference.text
                raise KernelError(
                    f"{spec.name}: the reference kernel {name!r} gave values that are not finite"
                )
            # What it may have damaged is its own affair, not that of the first configuration.
            arguments.restore()
            return judge_by(self._device, arguments, prepared.problem.reference_from(results))

    def _prove_and_time(
        self, prepared: _Prepared, judge: Judge, run: Launcher, protocol: MeasureProtocol, phases: Phases
    ) -> tuple[Check, Timing, str]:
        first = prepared.sets.first
        verification = Verification(self._device, first, judge.comparison, judge.watch, run)
        try:
            with phases("verify"):
                check = verification.before_timing(protocol.verify_launches)
            timing, shared = self._time(prepared.sets, run, protocol, phases, verification.launch_ms)
            with phases("finish"):
                verification.after_timing()
        except TrialFailed as failure:
            self._device.monitor.require_sound(self._device.monitor.readings(fresh=True))
            if not failure.details.get("sticky"):
                self._heal(judge, failure)
            raise
        changing = "" if protocol.allow_nondeterministic else verification.note
        return check, timing, "; ".join(filter(None, (changing, shared)))

    def _heal(self, judge: Judge, failure: TrialFailed) -> None:
        """Undo what a failed configuration did to memory; where that cannot be, the process must end."""
        with self._device.doing(Stage.VERIFY):
            lost = judge.watch.heal()
        if lost:
            reason = f"{failure.reason}; it wrote into {' and '.join(lost)}"
            details = {**failure.details, "sticky": True}
            raise TrialFailed(failure.status, failure.stage, reason, details=details) from failure

    def _time(
        self,
        sets: ArgumentSets,
        run: Launcher,
        protocol: MeasureProtocol,
        phases: Phases,
        expected_ms: float | None,
    ) -> tuple[Timing, str]:
        """Time it, once more if somebody else came to the device meanwhile. Raises SetupError for its faults."""
        timer, monitor = self._ready_timer(), self._device.monitor
        timing, readings = timer.measure(run, sets, protocol, phases, expected_ms)
        if monitor.strangers(readings):
            timing, _ = timer.measure(run, sets, protocol, phases, expected_ms)
            readings = monitor.readings(fresh=True)
        monitor.require_sound(readings)
        strangers = ", ".join(map(str, monitor.strangers(readings)))
        return timing, f"timed while others used the GPU: process {strangers}" if strangers else ""


@contextlib.contextmanager
def _told(phases: Phases) -> Iterator[None]:
    """A failure tells where its time went, too."""
    try:
        yield
    except TrialFailed as failure:
        failure.details["phases_s"] = dict(phases.seconds)
        raise
