"""One array argument on a CUDA device, between two guards.

    ┌───────┬─────────────────────┬───────┐
    │ guard │ the array           │ guard │   one allocation; guards hold NaN, for integers a pattern
    └───────┴─────────────────────┴───────┘

A guard that has changed tells of a write outside the array; read as data, it makes the result NaN.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.device_code import type_code
from sweeper.problem import Problem
from sweeper.problem.arguments import ResolvedArray

__all__ = ["DeviceArray", "as_bytes", "guarded_bytes", "poison_word"]

Array = npt.NDArray[Any]
Region = tuple[int, int]
"""Address and bytes."""

# A multiple of every alignment a kernel may ask of its arrays (TMA and vector loads: at most 128).
_GUARD_BYTES = 4096
_CHUNK_BYTES = 1 << 26
_FLOAT_GUARD, _INTEGER_GUARD = 0xFF, 0xA5


def guarded_bytes(array: ResolvedArray) -> int:
    """What an array takes on the device, guards included."""
    return array.nbytes + 2 * _GUARD_BYTES


def as_bytes(data: Array) -> npt.NDArray[np.uint8]:
    """A flat view of the same memory; extension types such as bfloat16 export no buffer of their own."""
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)


def poison_word(problem: Problem, array: ResolvedArray, nbytes: int) -> int:
    """The first `nbytes` bytes (at most 8, whole elements) of what no kernel computes, as a number."""
    elements = replace(array, shape=(nbytes // array.dtype.bytes,))
    return int.from_bytes(as_bytes(problem.poison(elements)).tobytes(), "little")


class DeviceArray:
    """`array` in device memory between two guards; freed with its last reference."""

    def __init__(self, device: CudaDevice, array: ResolvedArray) -> None:
        self.array = array
        self._device = device
        self._allocation = device.allocate(guarded_bytes(array))
        self.pointer = int(self._allocation) + _GUARD_BYTES
        self._guard = _INTEGER_GUARD if array.dtype.is_integer else _FLOAT_GUARD
        self.guard()

    @property
    def with_guards(self) -> Region:
        return int(self._allocation), guarded_bytes(self.array)

    @property
    def guards(self) -> tuple[Region, Region]:
        """The guard before the array, and the one after it."""
        start, end = self.pointer - _GUARD_BYTES, self.pointer + self.array.nbytes
        return (start, _GUARD_BYTES), (end, _GUARD_BYTES)

    def guard(self) -> None:
        """Fill both guards."""
        for place, nbytes in self.guards:
            self._device.drv.memset_d8_async(place, self._guard, nbytes, self._device.stream)

    def damage(self) -> str | None:
        """`wrote outside C: 128 bytes after its end, the nearest 0 bytes away`, or None. Waits for the device."""
        found = []
        for (place, nbytes), where in zip(self.guards, ("before its start", "after its end"), strict=True):
            held = np.empty(nbytes, np.uint8)
            self._device.drv.memcpy_dtoh(held, place)
            changed = np.flatnonzero(held != self._guard)
            if changed.size:
                nearest = nbytes - 1 - changed[-1] if place < self.pointer else changed[0]
                more = " or more" if changed.size == nbytes else ""
                found.append(f"{changed.size} bytes{more} {where}, the nearest {nearest} bytes away")
        return f"wrote outside {self.array.name}: {' and '.join(found)}" if found else None

    def upload(self, data: Array) -> None:
        self._device.drv.memcpy_htod(self.pointer, as_bytes(data))

    def download(self) -> Array:
        data = np.empty(self.array.shape, self.array.dtype.storage)
        self._device.drv.memcpy_dtoh(as_bytes(data), self.pointer)
        return data

    def equals(self, data: Array) -> bool:
        """Whether the array holds exactly the bytes of `data`; compared on the host, a chunk at a time."""
        want = as_bytes(data)
        held = np.empty(min(want.size, _CHUNK_BYTES), np.uint8)
        for start in range(0, want.size, _CHUNK_BYTES):
            part = held[: want.size - start]
            self._device.drv.memcpy_dtoh(part, self.pointer + start)
            if not np.array_equal(part, want[start : start + part.size]):
                return False
        return True

    def poison(self, problem: Problem) -> None:
        """Queue a fill with what no kernel computes."""
        self._device.code.fill(self.pointer, self.array.nbytes, poison_word(problem, self.array, 8))

    def negate(self) -> None:
        """Queue a change of every element to its negative."""
        self._device.code.negate(self.pointer, self.array.size, type_code(self.array.dtype))

    def copy_from(self, address: int) -> None:
        """Queue a copy from elsewhere on the device."""
        self._device.drv.memcpy_dtod_async(self.pointer, address, self.array.nbytes, self._device.stream)

    def copy_to(self, address: int) -> None:
        """Queue a copy to elsewhere on the device."""
        self._device.drv.memcpy_dtod_async(address, self.pointer, self.array.nbytes, self._device.stream)
