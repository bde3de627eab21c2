"""A kernel's arguments on a CUDA device: guarded, poisoned and restored arrays, scratch, and packed scalars.

The arrays of a problem stay on the device from one configuration to the next. What depends on the
configuration, its scratch arrays and scalars, belongs to a view of them: `Arguments.at`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.backend.cuda.arrays import DeviceArray, Region, guarded_bytes
from sweeper.backend.cuda.device import CudaDevice
from sweeper.errors import TrialFailed
from sweeper.model import Direction
from sweeper.problem import Problem
from sweeper.problem.arguments import ResolvedArray, ResolvedScalar

__all__ = ["ArgumentSets", "Arguments", "allocated_bytes", "scalar_format"]

Array = npt.NDArray[Any]

# Copies for cold batches take at most this share of the memory that is free.
_COPIES_SHARE = 0.25

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
    """What one set of the problem's arrays takes on the device: guards, and what `inout` arrays restart from.

    Scratch, which is another configuration's own, is not counted.
    """
    fresh = sum(a.stored_bytes for a in problem.arrays if a.direction is Direction.INOUT)
    return fresh + sum(map(guarded_bytes, problem.arrays))


def scalar_format(scalar: ResolvedScalar) -> tuple[str, int | float]:
    """A scalar's letter in an argument buffer, and the Python number that is packed for it."""
    value: Any = np.asarray(scalar.value, scalar.dtype.storage)
    if value.itemsize == 2 and not scalar.dtype.is_integer:
        value = value.view(np.uint16)
    return _FORMATS[f"{value.dtype.kind}{value.itemsize}"], value.item()


class Arguments:
    """One complete set of a problem's arguments on the device, in the kernel's order.

    `inputs` are the host's arrays, which stay the truth. `letters` and `numbers` are what goes into an
    argument buffer; where the problem has scratch, only those that `at` gives have them. Raises TrialFailed
    where there is no memory.
    """

    def __init__(
        self,
        device: CudaDevice,
        problem: Problem,
        inputs: Mapping[str, Array],
        *,
        sharing: Arguments | None = None,
    ) -> None:
        self._device = device
        self.problem = problem
        self.inputs = inputs
        self._fresh: dict[str, Any]
        self.scratch: dict[str, DeviceArray] = {}
        if sharing is None:
            self.arrays = {array.name: DeviceArray(device, array) for array in problem.arrays}
            self._fresh = {}
        else:
            self.arrays, self._fresh = sharing.arrays, sharing._fresh
            self.scratch = {array.name: DeviceArray(device, array) for array in problem.scratch}
            self.clear_scratch()
        packed = [self._packed(a) for a in problem.args] if len(self.scratch) == len(problem.scratch) else []
        self.letters = [letter for letter, _ in packed]
        self.numbers = [number for _, number in packed]

    def _packed(self, argument: ResolvedArray | ResolvedScalar) -> tuple[str, int | float]:
        if isinstance(argument, ResolvedScalar):
            return scalar_format(argument)
        held = self.scratch if argument.is_scratch else self.arrays
        return "P", held[argument.name].pointer

    def at(self, problem: Problem) -> Arguments:
        """These arrays with the scalars and a scratch of their own that `problem`, which has the same, asks for."""
        return Arguments(self._device, problem, self.inputs, sharing=self)

    def restore(self, *names: str) -> None:
        """Bring those arrays (default: all) back to what they were, with their guards."""
        for name in names or self.arrays:
            array = self.arrays[name]
            if name in self.inputs:
                array.upload(self.inputs[name])
            if array.array.direction is Direction.INOUT:
                if name not in self._fresh:
                    self._fresh[name] = self._device.allocate(array.array.stored_bytes)
                array.copy_to(int(self._fresh[name]))
            array.guard()

    def reset(self) -> None:
        """Queue what comes before a checked launch: outputs are poisoned, what is read and written too is fresh.

        So is scratch that nobody promised anything of; what a launch left in any other stays there.
        """
        for array in self.arrays.values():
            if array.array.direction is Direction.OUT:
                array.poison(self.problem)
        for array in self.scratch.values():
            if array.array.fill == "none":
                array.poison(self.problem)
        self.refill()

    def refill(self) -> None:
        """Queue copies that give a launch fresh content in what it reads and writes."""
        for name, fresh in self._fresh.items():
            self.arrays[name].copy_from(int(fresh))

    def clear_scratch(self) -> None:
        """Queue what scratch holds before a kernel's very first launch."""
        for array in self.scratch.values():
            if array.array.fill == "none":
                array.poison(self.problem)
            else:
                array.clear()
            array.guard()

    def scratch_damage(self) -> list[str]:
        """What was written beside scratch. Waits for the device."""
        return [text for array in self.scratch.values() if (text := array.damage())]

    @property
    def stored(self) -> dict[str, Region]:
        """Where the fresh content of arrays lies that are read and written."""
        return {name: (int(held), self.arrays[name].array.stored_bytes) for name, held in self._fresh.items()}

    @property
    def accumulates(self) -> bool:
        """Whether a launch changes what the next one reads."""
        return any(a.direction is Direction.INOUT for a in self.problem.arrays)

    def outputs(self) -> dict[str, Array]:
        """The content of all outputs. Waits for the device."""
        return {a.name: self.arrays[a.name].download() for a in self.problem.outputs}

    def copy(self) -> Arguments:
        """Another set with the same content, for launches that must not find their data in the cache."""
        twin = Arguments(self._device, self.problem, self.inputs)
        for name, array in twin.arrays.items():
            array.copy_from(self.arrays[name].pointer)
        return twin


class ArgumentSets:
    """A set of arguments and copies of it, made as they are needed and kept."""

    def __init__(self, device: CudaDevice, first: Arguments) -> None:
        self._device = device
        self._sets = [first]

    @property
    def first(self) -> Arguments:
        return self._sets[0]

    def __getitem__(self, number: int) -> Arguments:
        return self._sets[number]

    def at(self, problem: Problem) -> ArgumentSets:
        """The same sets with what a configuration has for itself: see `Arguments.at`."""
        return _SetsAt(self._device, self, problem)

    def provide(self, wanted: int) -> int:
        """Copy until there are `wanted` sets, as far as the memory allows; how many of them there are."""
        room = int(self._device.memory()[0] * _COPIES_SHARE) // self._copy_bytes()
        for _ in range(min(wanted - len(self._sets), room)):
            try:
                self._sets.append(self._copy())
            except TrialFailed:
                break
        return min(wanted, len(self._sets))

    def _copy_bytes(self) -> int:
        return max(1, allocated_bytes(self.first.problem))

    def _copy(self) -> Arguments:
        return self.first.copy()


class _SetsAt(ArgumentSets):
    """The arrays of `base` and of its copies; scratch is each set's own, as a launch of the first one left it.

    Shared by all of them it would be found in the cache, and what one launch left would be the next one's.
    """

    def __init__(self, device: CudaDevice, base: ArgumentSets, problem: Problem) -> None:
        super().__init__(device, base.first.at(problem))
        self._base = base

    def provide(self, wanted: int) -> int:
        return super().provide(self._base.provide(wanted))

    def _copy_bytes(self) -> int:
        return max(1, sum(map(guarded_bytes, self.first.problem.scratch)))

    def _copy(self) -> Arguments:
        twin = self._base[len(self._sets)].at(self.first.problem)
        for name, array in twin.scratch.items():
            array.copy_from(self.first.scratch[name].pointer)
        return twin
