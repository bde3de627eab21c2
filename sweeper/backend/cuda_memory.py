"""A kernel's arguments on a CUDA device: guarded, poisoned and watched arrays, and packed scalars.

    ┌───────┬─────────────────────┬───────┐
    │ guard │ the array           │ guard │   one allocation; guards hold NaN, for integers a pattern
    └───────┴─────────────────────┴───────┘

A guard that has changed tells of a write outside the array; read as data, it makes the result NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.backend.cuda_device import CudaDevice
from sweeper.model import Direction
from sweeper.problem import Problem
from sweeper.problem.arguments import ResolvedArray, ResolvedScalar

__all__ = ["Arguments", "DeviceArray", "allocated_bytes", "scalar_format"]

Array = npt.NDArray[Any]

# A multiple of every alignment a kernel may ask of its arrays (TMA and vector loads: at most 128).
_GUARD_BYTES = 4096
_CHUNK_BYTES = 1 << 26
_FLOAT_GUARD, _INTEGER_GUARD = 0xFF, 0xA5

# By kind and size, in the letters of `struct`; 16-bit floating-point values travel as their bits.
_FORMATS = {
    "i1": "b",
    "i2": "h",
    "i4": "i",
    "i8": "q",
    "u1": "B",
    "u2": "H",
    "u4": "I",
    "u8": "Q",
    "f4": "f",
    "f8": "d",
}


def allocated_bytes(problem: Problem) -> int:
    """What one set of the problem's arrays takes on the device, guards included."""
    return sum(array.nbytes + 2 * _GUARD_BYTES for array in problem.arrays)


def scalar_format(scalar: ResolvedScalar) -> tuple[str, int | float]:
    """A scalar's letter in an argument buffer, and the Python number that is packed for it."""
    value: Any = np.asarray(scalar.value, scalar.dtype.storage)
    if value.itemsize == 2 and not scalar.dtype.is_integer:
        value = value.view(np.uint16)
    return _FORMATS[f"{value.dtype.kind}{value.itemsize}"], value.item()


def _bytes(data: Array) -> npt.NDArray[np.uint8]:
    """A flat view of the same memory; extension types such as bfloat16 export no buffer of their own."""
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)


class DeviceArray:
    """One array argument in device memory between two guards."""

    def __init__(self, device: CudaDevice, array: ResolvedArray) -> None:
        self.array = array
        self._device = device
        self._allocation = device.allocate(array.nbytes + 2 * _GUARD_BYTES)
        self.pointer = int(self._allocation) + _GUARD_BYTES
        self._guard = _INTEGER_GUARD if array.dtype.is_integer else _FLOAT_GUARD
        self.guard()

    def guard(self) -> None:
        """Fill both guards."""
        for place, _ in self._guards():
            self._device.drv.memset_d8_async(place, self._guard, _GUARD_BYTES, self._device.stream)

    def _guards(self) -> tuple[tuple[int, str], tuple[int, str]]:
        start = self.pointer - _GUARD_BYTES
        return (start, "before its start"), (self.pointer + self.array.nbytes, "after its end")

    def damage(self) -> str | None:
        """`wrote outside C: 128 bytes after its end, the nearest 0 bytes away`, or None."""
        found = []
        for place, where in self._guards():
            held = np.empty(_GUARD_BYTES, np.uint8)
            self._device.drv.memcpy_dtoh(held, place)
            changed = np.flatnonzero(held != self._guard)
            if changed.size:
                nearest = _GUARD_BYTES - 1 - changed[-1] if place < self.pointer else changed[0]
                more = " or more" if changed.size == _GUARD_BYTES else ""
                found.append(f"{changed.size} bytes{more} {where}, the nearest {nearest} bytes away")
        return f"wrote outside {self.array.name}: {' and '.join(found)}" if found else None

    def upload(self, data: Array) -> None:
        self._device.drv.memcpy_htod(self.pointer, _bytes(data))

    def download(self) -> Array:
        data = np.empty(self.array.shape, self.array.dtype.storage)
        self._device.drv.memcpy_dtoh(_bytes(data), self.pointer)
        return data

    def equals(self, data: Array) -> bool:
        """Whether the array holds exactly the bytes of `data`; compared a chunk at a time."""
        want = _bytes(data)
        held = np.empty(min(want.size, _CHUNK_BYTES), np.uint8)
        for start in range(0, want.size, _CHUNK_BYTES):
            part = held[: want.size - start]
            self._device.drv.memcpy_dtoh(part, self.pointer + start)
            if not np.array_equal(part, want[start : start + part.size]):
                return False
        return True

    def poison(self, problem: Problem) -> None:
        """Fill with what no kernel computes; grown on the device from one block of the host's."""
        whole = self.array.nbytes
        block = _bytes(problem.poison(replace(self.array, shape=(min(self.array.size, 1 << 16),))))
        self.upload(block)
        done = block.size
        while done < whole:
            size = min(done, whole - done)
            self._device.drv.memcpy_dtod_async(self.pointer + done, self.pointer, size, self._device.stream)
            done += size

    def copy_from(self, other: DeviceArray) -> None:
        nbytes = self.array.nbytes
        self._device.drv.memcpy_dtod_async(self.pointer, other.pointer, nbytes, self._device.stream)


class Arguments:
    """One complete set of a problem's arguments on the device, in the kernel's order.

    `inputs` are the host's arrays, which stay the truth: the device's are compared with them and
    restored from them. `letters` and `numbers` are what goes into an argument buffer.
    """

    def __init__(self, device: CudaDevice, problem: Problem, inputs: Mapping[str, Array]) -> None:
        self._device = device
        self.problem = problem
        self.inputs = inputs
        self.arrays = {array.name: DeviceArray(device, array) for array in problem.arrays}
        packed = [self._packed(argument) for argument in problem.args]
        self.letters = [letter for letter, _ in packed]
        self.numbers = [number for _, number in packed]

    def _packed(self, argument: ResolvedArray | ResolvedScalar) -> tuple[str, int | float]:
        if isinstance(argument, ResolvedScalar):
            return scalar_format(argument)
        return "P", self.arrays[argument.name].pointer

    def restore(self) -> None:
        """Bring inputs and guards back to what they were; outputs are poisoned."""
        for name, data in self.inputs.items():
            self.arrays[name].upload(data)
        for array in self.arrays.values():
            array.guard()
        self.reset()

    def reset(self) -> None:
        """Poison what is only written, and refill what is read and written: before a checked launch."""
        for array in self.arrays.values():
            if array.array.direction is Direction.OUT:
                array.poison(self.problem)
        self.refill()

    def refill(self) -> None:
        for array in self.arrays.values():
            if array.array.direction is Direction.INOUT:
                array.upload(self.inputs[array.array.name])

    @property
    def accumulates(self) -> bool:
        """Whether a launch changes what the next one reads."""
        return any(a.direction is Direction.INOUT for a in self.problem.arrays)

    def outputs(self) -> dict[str, Array]:
        return {a.name: self.arrays[a.name].download() for a in self.problem.outputs}

    def damage(self) -> list[str]:
        """What was written that ought not to be: outside the arrays, or into inputs."""
        found = [text for array in self.arrays.values() if (text := array.damage())]
        for name, array in self.arrays.items():
            if array.array.direction is Direction.IN and not array.equals(self.inputs[name]):
                found.append(f"wrote into its input {name}")
        return found

    def copy(self) -> Arguments:
        """Another set with the same content, for launches that must not find their data in the cache."""
        twin = Arguments(self._device, self.problem, self.inputs)
        for name, array in twin.arrays.items():
            array.copy_from(self.arrays[name])
        return twin
