"""Right results in device memory, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweeper.backend.cuda.arrays import Region, as_bytes
from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.device_code import Wanted
from sweeper.problem.arguments import ResolvedArray
from sweeper.problem.reference import ReferenceValues

__all__ = ["DeviceReference", "reference_bytes", "upload"]

_WORD_BYTES = 8


def reference_bytes(array: ResolvedArray) -> int:
    """What an output's reference takes on the device: a value an element, and unless it is exact a bound."""
    return array.size * _WORD_BYTES * (1 if array.dtype.is_integer else 2)


class DeviceReference:
    """What `array` should hold: float64 values and bounds, or for integers int64 values alone.

    Raises TrialFailed where the device has no memory left. Nothing is in it yet.
    """

    def __init__(self, device: CudaDevice, array: ResolvedArray) -> None:
        self.array = array
        self._values: Any = device.allocate(array.size * _WORD_BYTES)
        self._bounds: Any = None if array.dtype.is_integer else device.allocate(array.size * _WORD_BYTES)

    @property
    def wanted(self) -> Wanted:
        exact = self._bounds is None
        return Wanted(int(self._values), 0 if exact else int(self._bounds), exact)

    @property
    def regions(self) -> tuple[Region, ...]:
        """The memory that it takes."""
        held = [buffer for buffer in (self._values, self._bounds) if buffer is not None]
        return tuple((int(buffer), self.array.size * _WORD_BYTES) for buffer in held)


def upload(
    device: CudaDevice, references: Mapping[str, ReferenceValues], arrays: tuple[ResolvedArray, ...]
) -> dict[str, DeviceReference]:
    """The host's `references` of `arrays` on the device. Raises TrialFailed where they do not fit."""
    placed = {}
    for array in arrays:
        reference, host = DeviceReference(device, array), references[array.name]
        device.drv.memcpy_htod(reference.wanted.values, as_bytes(host.values))
        if not reference.wanted.exact:
            device.drv.memcpy_htod(reference.wanted.bounds, as_bytes(host.bound))
        placed[array.name] = reference
    return placed
