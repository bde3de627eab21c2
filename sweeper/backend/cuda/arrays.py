"""One array argument on a CUDA device, between two guards.

    ┌───────┬─────────────────────┬───────┐
    │ guard │ the array           │ guard │   one allocation; guards hold NaN, for integers a pattern
    └───────┴─────────────────────┴───────┘

A guard that has changed tells of a write outside the array; read as data, it makes the result NaN. So it is
with what lies between the rows of an array that has a pitch.
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
from sweeper.problem.storage import in_storage, valid_part

__all__ = ["DeviceArray", "as_bytes", "copy", "guarded_bytes", "poison_word"]

Array = npt.NDArray[Any]
Region = tuple[int, int]
"""Address and bytes."""

# A multiple of every alignment a kernel may ask of its arrays (TMA and vector loads: at most 128).
_GUARD_BYTES = 4096
_CHUNK_BYTES = 1 << 26
# PyCUDA takes the size of a copy as a 32-bit number.
_MOST_COPIED = 1 << 30
_FLOAT_GUARD, _INTEGER_GUARD = 0xFF, 0xA5


def guarded_bytes(array: ResolvedArray) -> int:
    """What an array takes on the device, guards included."""
    return array.stored_bytes + 2 * _GUARD_BYTES


def as_bytes(data: Array) -> npt.NDArray[np.uint8]:
    """A flat view of the same memory; extension types such as bfloat16 export no buffer of their own."""
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)


def poison_word(problem: Problem, array: ResolvedArray, nbytes: int) -> int:
    """The first `nbytes` bytes (at most 8, whole elements) of what no kernel computes, as a number."""
    elements = replace(array, shape=(nbytes // array.dtype.bytes,), row_pitch=None)
    return int.from_bytes(as_bytes(problem.poison(elements)).tobytes(), "little")


def copy(device: CudaDevice, to: int, source: int, nbytes: int) -> None:
    """Queue a copy of memory of any size on the device."""
    for start in range(0, nbytes, _MOST_COPIED):
        part = min(_MOST_COPIED, nbytes - start)
        device.drv.memcpy_dtod_async(to + start, source + start, part, device.stream)


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
        start, end = self.pointer - _GUARD_BYTES, self.pointer + self.array.stored_bytes
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
        self._device.drv.memcpy_htod(self.pointer, as_bytes(in_storage(self.array, data)))

    def download(self) -> Array:
        """The array's elements, in its shape."""
        return valid_part(self.array, self.download_stored())

    def download_stored(self) -> Array:
        """All of its memory, flat, with what lies between rows."""
        data = np.empty(self.array.stored_size, self.array.dtype.storage)
        self._device.drv.memcpy_dtoh(as_bytes(data), self.pointer)
        return data

    def equals(self, data: Array) -> bool:
        """Whether the array holds exactly `data`, and poison between its rows; compared a chunk at a time."""
        want = as_bytes(in_storage(self.array, data))
        held = np.empty(min(want.size, _CHUNK_BYTES), np.uint8)
        for start in range(0, want.size, _CHUNK_BYTES):
            part = held[: want.size - start]
            self._device.drv.memcpy_dtoh(part, self.pointer + start)
            if not np.array_equal(part, want[start : start + part.size]):
                return False
        return True

    def poison(self, problem: Problem) -> None:
        """Queue a fill with what no kernel computes."""
        self._fill(poison_word(problem, self.array, 8))

    def clear(self) -> None:
        """Queue a fill with zeros."""
        self._fill(0)

    def _fill(self, word: int) -> None:
        if self.array.stored_bytes:
            self._device.code.fill(self.pointer, self.array.stored_bytes, word)

    def negate(self) -> None:
        """Queue a change of every element to its negative."""
        self._device.code.negate(self.pointer, self.array.stored_size, type_code(self.array.dtype))

    def copy_from(self, address: int) -> None:
        """Queue a copy from elsewhere on the device."""
        copy(self._device, self.pointer, address, self.array.stored_bytes)

    def copy_to(self, address: int) -> None:
        """Queue a copy to elsewhere on the device."""
        copy(self._device, address, self.pointer, self.array.stored_bytes)

    def gather(self, address: int) -> None:
        """Queue a copy of its elements, without what lies between rows, to elsewhere on the device."""
        a = self.array
        self._device.code.gather(
            self.pointer, address, count=a.size, width=a.width, pitch=a.pitch, item_bytes=a.dtype.bytes
        )

    def find_gap_writes(self, problem: Problem, found: int) -> None:
        """Queue a count of what was written between rows, to the two 64-bit words at `found`: see `gap_damage`."""
        a = self.array
        self._device.drv.memset_d8_async(found, 0, 16, self._device.stream)
        self._device.code.gaps(
            self.pointer,
            found,
            count=(a.rows - 1) * (a.pitch - a.width),
            width=a.width,
            pitch=a.pitch,
            item_bytes=a.dtype.bytes,
            pattern=poison_word(problem, a, a.dtype.bytes),
        )
