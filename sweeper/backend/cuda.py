"""The CUDA backend: load a cubin through PyCUDA, launch it, prove it right, time it."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sweeper.backend.base import MeasureProtocol, Outcome
from sweeper.backend.cublas import Cublas, gemm_of, neutral_environment
from sweeper.backend.cuda_device import CudaDevice
from sweeper.backend.cuda_kernel import LoadedKernel, load_kernel, plain_kernel
from sweeper.backend.cuda_memory import Arguments, allocated_bytes
from sweeper.backend.cuda_timing import Timer
from sweeper.backend.cuda_verify import Launcher, Verification
from sweeper.backend.reference_cache import ReferenceCache
from sweeper.device import DeviceIdentity, Target
from sweeper.device.nvml import Nvml, NvmlReadings, device_fault
from sweeper.errors import ConfigError, KernelError, SetupError, TrialFailed
from sweeper.model import Build, Check, KernelSpec, Launch, Point, Stage, Timing
from sweeper.problem import Problem
from sweeper.problem.reference import ReferenceValues

__all__ = ["CudaBackend"]

_LIBRARIES = ("cublas",)


@dataclass(slots=True)
class _Prepared:
    """What stays on the device from one configuration to the next; `reference` may come later."""

    spec: KernelSpec
    problem: Problem
    arguments: Arguments
    timer: Timer
    reference: Mapping[str, ReferenceValues] | None


class CudaBackend:
    """Runs kernels on one GPU, which this process owns until `close`.

    `scratch` is a folder in which references outlive the process; `allow_shared` lets it use a GPU that
    other processes are on; `nvml` takes the place of the real readings in tests.
    """

    name = "cuda"

    def __init__(
        self, *, scratch: Path | None = None, allow_shared: bool = False, nvml: Nvml | None = None
    ) -> None:
        self._references = ReferenceCache(scratch)
        self._allow_shared = allow_shared
        self._nvml = nvml or Nvml()
        self._opened: tuple[CudaDevice, Target] | None = None
        self._prepared: _Prepared | None = None
        self._cublas: Cublas | None = None
        self._last_readings = NvmlReadings()

    def open(self, device: int, target: str | None) -> tuple[Target, DeviceIdentity]:
        """Take the GPU number `device`; its limits are its own, whatever `target` says."""
        del target
        neutral_environment()
        opened = CudaDevice(device, self._nvml, allow_shared=self._allow_shared)
        limits = opened.target()
        self._opened = opened, limits
        self._last_readings = opened.readings()
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
        """Fill the device with the problem's arrays and compute what is right.

        Raises TrialFailed (out of memory) before anything is computed where it cannot fit.
        """
        self._prepared = None
        gc.collect()
        with self._device.doing(Stage.LOAD):
            self._device.require_memory(allocated_bytes(problem) + 2 * self._target.l2_bytes)
            inputs = problem.inputs()
            reference = None
            if spec.reference.kind != "kernel":
                reference = self._references.get(problem, lambda: problem.reference(inputs))
            arguments = Arguments(self._device, problem, inputs)
            arguments.restore()
            timer = Timer(
                self._device, arguments, l2_bytes=self._target.l2_bytes, clock_mhz=self._target.clock_mhz
            )
            self._device.synchronize()
        self._device.know_users()
        self._prepared = _Prepared(spec, problem, arguments, timer, reference)

    def _ready(self) -> _Prepared:
        if self._prepared is None:
            raise SetupError("no problem is prepared on the CUDA device")
        return self._prepared

    def measure(self, point: Point, launch: Launch, build: Build, protocol: MeasureProtocol) -> Outcome:
        """Load, launch, verify and time one configuration. Raises TrialFailed, SetupError."""
        prepared = self._ready()
        kernel = load_kernel(self._device, self._target, build, launch)
        if prepared.reference is None:
            prepared.reference = self._plain_reference(prepared, kernel, point)
        run = kernel.launcher(prepared.arguments)
        check, timing, note = self._prove_and_time(prepared, run, protocol)
        return Outcome(check, kernel.build, kernel.launch, timing, note)

    def baseline(self, library: str, protocol: MeasureProtocol) -> Outcome:
        """cuBLAS's answer to the prepared problem. Raises TrialFailed where it has none."""
        if library not in _LIBRARIES:
            raise ConfigError(f"unknown baseline library {library!r}", hint=f"known: {', '.join(_LIBRARIES)}")
        prepared = self._ready()
        gemm = gemm_of(prepared.problem)
        if self._cublas is None:
            self._cublas = Cublas(int(self._device.stream.handle))
        cublas = self._cublas

        def run(arguments: Arguments) -> None:
            a, b, c = (arguments.arrays[name].pointer for name in (gemm.a, gemm.b, gemm.c))
            cublas.run(gemm, a, b, c)

        check, timing, note = self._prove_and_time(prepared, run, protocol)
        notes = [cublas.describe(gemm), note]
        return Outcome(check, None, None, timing, "; ".join(filter(None, notes)))

    def close(self) -> None:
        """Give the device back; nothing to do where it was not open."""
        self._prepared = None
        if self._cublas is not None:
            self._cublas.close()
            self._cublas = None
        if self._opened is not None:
            self._opened[0].close()
            self._opened = None
        self._nvml.close()

    def _plain_reference(
        self, prepared: _Prepared, kernel: LoadedKernel, point: Point
    ) -> Mapping[str, ReferenceValues]:
        """What the plain kernel of the same source computes, one thread a work item."""
        spec, arguments = prepared.spec, prepared.arguments
        with self._device.doing(Stage.VERIFY):
            run = plain_kernel(kernel, spec, point, self._target, arguments)
            arguments.reset()
            run(arguments)
            self._device.synchronize()
            results = arguments.outputs()
        if not all(np.isfinite(data.astype(np.float64)).all() for data in results.values()):
            name = spec.reference.text
            raise KernelError(f"{spec.name}: the reference kernel {name!r} gave values that are not finite")
        return prepared.problem.reference_from(results)

    def _prove_and_time(
        self, prepared: _Prepared, run: Launcher, protocol: MeasureProtocol
    ) -> tuple[Check, Timing, str]:
        reference = prepared.reference
        if reference is None:
            raise AssertionError("the reference comes first")
        verification = Verification(self._device, prepared.arguments, reference, run)
        try:
            check = verification.before_timing(protocol.verify_launches)
            timing, readings, shared = self._time(prepared.timer, run, protocol)
            verification.after_timing()
        except TrialFailed as failure:
            self._require_sound(self._device.readings())
            if not failure.details.get("sticky"):
                with self._device.doing(Stage.VERIFY):
                    prepared.arguments.restore()
            raise
        self._require_sound(readings)
        changing = "" if protocol.allow_nondeterministic else verification.note
        return check, timing, "; ".join(filter(None, (changing, shared)))

    def _require_sound(self, now: NvmlReadings) -> None:
        """Raise SetupError if the device reports a fault that it had not at the last trial."""
        before, self._last_readings = self._last_readings, now
        fault = device_fault(before, now)
        if fault:
            raise SetupError(
                f"device {self._device.pci_bus_id} is not sound: {fault}",
                hint="look at dmesg and nvidia-smi -q; what was measured before is kept",
            )

    def _time(
        self, timer: Timer, run: Launcher, protocol: MeasureProtocol
    ) -> tuple[Timing, NvmlReadings, str]:
        """Time it, once more if somebody else came to the device meanwhile."""
        timing, readings = timer.measure(run, protocol)
        if self._device.strangers(readings):
            timing, readings = timer.measure(run, protocol)
        strangers = ", ".join(map(str, self._device.strangers(readings)))
        return timing, readings, f"timed while others used the GPU: process {strangers}" if strangers else ""
