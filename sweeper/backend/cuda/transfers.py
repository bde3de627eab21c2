"""How long a problem's arrays take between host and device, and the product itself on the host.

Everything that is read goes to the device and everything that is written comes back, one copy after another, as
a program with plain copies does it. Pageable memory is what `malloc` gives, touched before; the driver stages it
through a buffer of its own, and the time is the host's. Pinned memory is page-locked, and the time the device's.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.backend.cuda.arguments import Arguments
from sweeper.backend.cuda.arrays import DeviceArray, as_bytes
from sweeper.backend.cuda.device import CudaDevice
from sweeper.model import Stage
from sweeper.problem.host_product import time_on_host
from sweeper.problem.storage import in_storage

__all__ = ["Transfers", "transfers"]

Bytes = npt.NDArray[np.uint8]
Transfers = dict[str, float | str]
"""Milliseconds by column (`h2d_ms`, `d2h_ms`, `h2d_pinned_ms`, `d2h_pinned_ms`, `cpu_ms`), and `cpu_note`."""

_MOST_REPEATS = 7
_SECONDS = 0.5


def transfers(device: CudaDevice, arguments: Arguments) -> Transfers:
    """The times of `arguments`' copies and of the host's own product; what cannot be measured is left out.

    Inputs are copied over themselves, so the arrays hold afterwards what they held, those that are read and
    written what they began with. Raises TrialFailed where a copy fails.
    """
    found: Transfers = {}
    inputs = [a for a in arguments.arrays.values() if a.array.is_input]
    outputs = [a for a in arguments.arrays.values() if a.array.is_output]
    sources = [as_bytes(in_storage(a.array, arguments.inputs[a.array.name])) for a in inputs]
    targets: list[Bytes] = [np.zeros(a.array.stored_bytes, np.uint8) for a in outputs]
    with device.doing(Stage.MEASURE):
        found["h2d_ms"] = _pageable(device, lambda: _to_device(device, inputs, sources))
        found["d2h_ms"] = _pageable(device, lambda: _to_host(device, outputs, targets))
        pinned = _pinned(device, max(a.array.stored_bytes for a in arguments.arrays.values()))
        if pinned is not None:
            found["h2d_pinned_ms"] = _each_pinned(device, inputs, sources, pinned, to_device=True)
            found["d2h_pinned_ms"] = _each_pinned(device, outputs, targets, pinned, to_device=False)
    on_host = time_on_host(arguments.problem, arguments.inputs)
    if on_host is not None:
        found |= {"cpu_ms": on_host.time_ms, "cpu_note": on_host.note}
    return found


def _to_device(device: CudaDevice, arrays: Sequence[DeviceArray], sources: Sequence[Bytes]) -> None:
    for array, source in zip(arrays, sources, strict=True):
        device.drv.memcpy_htod(array.pointer, source)


def _to_host(device: CudaDevice, arrays: Sequence[DeviceArray], targets: Sequence[Bytes]) -> None:
    for array, target in zip(arrays, targets, strict=True):
        device.drv.memcpy_dtoh(target, array.pointer)


def _pageable(device: CudaDevice, copy: Callable[[], None]) -> float:
    """Milliseconds on the host until the last byte has arrived; the first copy is not timed."""

    def once() -> float:
        began = time.perf_counter()
        copy()
        # A copy from pageable memory may return while its last part is still on the way.
        device.drv.Context.synchronize()
        return 1e3 * (time.perf_counter() - began)

    device.synchronize()
    return _median(once)


def _each_pinned(
    device: CudaDevice,
    arrays: Sequence[DeviceArray],
    held: Sequence[Bytes],
    pinned: Bytes,
    *,
    to_device: bool,
) -> float:
    """Milliseconds on the device, summed over the arrays: they take turns in one pinned buffer."""
    drv, stopwatch, total = device.drv, device.stopwatch, 0.0
    for array, content in zip(arrays, held, strict=True):
        part = pinned[: content.size]
        part[...] = content

        def once(array: DeviceArray = array, part: Bytes = part) -> float:
            stopwatch.start()
            if to_device:
                drv.memcpy_htod_async(array.pointer, part, device.stream)
            else:
                drv.memcpy_dtoh_async(part, array.pointer, device.stream)
            stopwatch.stop()
            return float(stopwatch.wait_ms())

        total += _median(once)
    return total


def _pinned(device: CudaDevice, nbytes: int) -> Any:
    """Page-locked memory, None where the host gives none; freed with its last reference."""
    try:
        return device.drv.pagelocked_empty(nbytes, np.uint8)
    except device.drv.Error:
        return None


def _median(once: Callable[[], float]) -> float:
    """Of a few, after an untimed one, within about half a second; at least one."""
    once()
    samples: list[float] = []
    while not samples or (len(samples) < _MOST_REPEATS and sum(samples) < 1e3 * _SECONDS):
        samples.append(once())
    return statistics.median(samples)
