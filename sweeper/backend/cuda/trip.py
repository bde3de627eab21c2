"""The whole way of a problem: from the host's arrays over the device and back to the host's arrays.

    stream 1  │ B │ A₁ │ launch₁ │ C₁ │      │ A₃ │ launch₃ │ C₃ │
    stream 2            │ A₂ │ launch₂ │ C₂ │      │ A₄ │ …

Arrays that are not cut are copied once, in the first stream; the others wait for that. Copies from and to
pinned memory are asynchronous and go on beside launches of other streams. Pageable memory is copied by plain
calls that return when the data is there, as a program without streams does it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.backend.cuda.arguments import Arguments, scalar_format
from sweeper.backend.cuda.arrays import DeviceArray, as_bytes
from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.kernel import LoadedKernel
from sweeper.backend.cuda.verification import Launcher
from sweeper.device import Target
from sweeper.model import KernelSpec, Point, Stage
from sweeper.problem.arguments import ResolvedScalar
from sweeper.problem.slabs import Part, Slab, TripPlan, told
from sweeper.problem.storage import in_storage
from sweeper.resources.geometry import launch_of

__all__ = ["HostArrays", "Trip", "kernel_trip", "library_trip"]

Bytes = npt.NDArray[np.uint8]
Launch = Callable[[Any], None]
"""Queues a launch on the given stream."""


class HostArrays:
    """The arrays of `arguments` on the host, as they lie in memory, pinned or pageable.

    Raises TrialFailed (out of memory) where the host has no room for pinned ones.
    """

    def __init__(self, device: CudaDevice, arguments: Arguments, *, pinned: bool) -> None:
        self._device = device
        self.held: dict[str, Bytes] = {}
        for name, array in arguments.arrays.items():
            self.held[name] = self._memory(array.array.stored_bytes, pinned=pinned)
            if name in arguments.inputs:
                self.held[name][...] = as_bytes(in_storage(array.array, arguments.inputs[name]))
            else:
                # Touched, so that no later copy pays for the pages.
                self.held[name].fill(0xFF)

    def _memory(self, nbytes: int, *, pinned: bool) -> Any:
        if not pinned:
            return np.empty(nbytes, np.uint8)
        try:
            return self._device.drv.pagelocked_empty(nbytes, np.uint8)
        except self._device.drv.MemoryError:
            raise self._device.out_of_memory(nbytes, Stage.LOAD) from None


@dataclass(frozen=True, slots=True)
class _Step:
    """One part: what it needs of the host's arrays, its launch, and what goes back."""

    reads: tuple[Part, ...]
    launch: Launch
    writes: tuple[Part, ...]


class Trip:
    """The way of one configuration. `run` does it once and returns when the host has everything."""

    def __init__(
        self,
        device: CudaDevice,
        arguments: Arguments,
        host: HostArrays,
        steps: Sequence[_Step],
        whole: Sequence[Part],
        *,
        streams: int,
        pinned: bool,
        note: str,
    ) -> None:
        self.note = note
        self._device = device
        self._arguments = arguments
        self._host = host.held
        self._steps = steps
        self._whole = whole
        self._pinned = pinned
        self._streams = [device.stream, *(device.drv.Stream() for _ in range(streams - 1))]
        self._ready = device.drv.Event()

    def run(self) -> None:
        """May raise PyCUDA's errors."""
        first, *others = self._streams
        for part in self._whole:
            self._to_device(part, first)
        if others and self._whole:
            self._ready.record(first)
            for stream in others:
                stream.wait_for_event(self._ready)
        for number, step in enumerate(self._steps):
            stream = self._streams[number % len(self._streams)]
            for part in step.reads:
                self._to_device(part, stream)
            step.launch(stream)
            for part in step.writes:
                self._to_host(part, stream)
        for stream in self._streams:
            stream.synchronize()

    def timed_ms(self) -> float:
        """One trip's time on the host's clock."""
        began = time.perf_counter()
        self.run()
        return 1e3 * (time.perf_counter() - began)

    def prove(self, given: Arguments) -> None:
        """One trip whose every part can be judged by what is on the device afterwards.

        What the device holds is what the host begins with. Then the device's inputs and the host's outputs
        are poisoned, so that a part that is not copied cannot go unseen, and in the end the device has what
        has arrived on the host.
        """
        arrays = given.arrays
        inputs = [a for a in arrays.values() if a.array.is_input]
        outputs = [a for a in arrays.values() if a.array.is_output]
        self._device.synchronize()
        for array in (*inputs, *outputs):
            # Of outputs too: they were poisoned, and what lies between rows belongs to nobody.
            self._device.drv.memcpy_dtoh(self._host[array.array.name], array.pointer)
        for array in inputs:
            array.poison(given.problem)
        self._device.synchronize()
        self.run()
        for array in outputs:
            self._device.drv.memcpy_htod(array.pointer, self._host[array.array.name])

    def _to_device(self, part: Part, stream: Any) -> None:
        array, source = self._place(part)
        if self._pinned:
            self._device.drv.memcpy_htod_async(array.pointer + part.offset, source, stream)
        else:
            self._device.drv.memcpy_htod(array.pointer + part.offset, source)

    def _to_host(self, part: Part, stream: Any) -> None:
        array, target = self._place(part)
        if self._pinned:
            self._device.drv.memcpy_dtoh_async(target, array.pointer + part.offset, stream)
        else:
            self._device.drv.memcpy_dtoh(target, array.pointer + part.offset)

    def _place(self, part: Part) -> tuple[DeviceArray, Bytes]:
        held = self._host[part.array]
        return self._arguments.arrays[part.array], held[part.offset : part.offset + part.nbytes]


def kernel_trip(
    kernel: LoadedKernel,
    spec: KernelSpec,
    point: Point,
    target: Target,
    arguments: Arguments,
    host: HostArrays,
    plan: TripPlan,
) -> Trip:
    """The trip of a loaded kernel, cut as `plan` says. Raises ConfigError for a slab without a launch."""
    kernel.function.prepare(arguments.letters)
    steps = [
        _Step(slab.reads, _launch(kernel, spec, point, target, arguments, slab), slab.writes)
        for slab in plan.slabs
    ]
    return Trip(
        kernel.device,
        arguments,
        host,
        steps,
        plan.whole,
        streams=plan.streams,
        pinned=plan.pinned,
        note=str(plan),
    )


def _launch(
    kernel: LoadedKernel, spec: KernelSpec, point: Point, target: Target, arguments: Arguments, slab: Slab
) -> Launch:
    geometry = launch_of(spec, point, slab.problem.dims, target)
    numbers = [
        scalar_format(argument)[1]
        if isinstance(argument, ResolvedScalar)
        else arguments.arrays[argument.name].pointer + slab.offsets.get(argument.name, 0)
        for argument in slab.problem.args
    ]
    call = kernel.function.prepared_async_call
    grid, block, shared_bytes = geometry.grid, geometry.block, geometry.shared_bytes
    return lambda stream: call(grid, block, stream, *numbers, shared_size=shared_bytes)


def library_trip(device: CudaDevice, arguments: Arguments, host: HostArrays, run: Launcher) -> Trip:
    """The trip of a library's kernel, which works on the device's own stream: pinned, and in one part."""
    reads = tuple(_all_of(a) for a in arguments.arrays.values() if a.array.is_input)
    writes = tuple(_all_of(a) for a in arguments.arrays.values() if a.array.is_output)
    step = _Step(reads, lambda _: run(arguments), writes)
    note = told(parts=1, streams=1, pinned=True)
    return Trip(device, arguments, host, [step], (), streams=1, pinned=True, note=note)


def _all_of(array: DeviceArray) -> Part:
    return Part(array.array.name, 0, array.array.stored_bytes)
