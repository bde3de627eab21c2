"""One problem's arrays in memory that the emulator's launches map, and the verification of what they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.emulation import Argument, Buffer, Geometry, LaunchReport, Limits, Order, Scalar, launch
from sweeper.model import Check, Direction
from sweeper.problem import Problem, ReferenceValues, ResolvedArray

__all__ = ["Arena"]

Array = npt.NDArray[Any]


class Arena:
    """The arrays of `problem`, filled; `close` releases them.

    `run_reference` computes right results where only a plain kernel can: given the arena, it returns
    the outputs by name.
    """

    def __init__(
        self,
        problem: Problem,
        launcher: Path,
        limits: Limits,
        run_reference: Callable[[Arena], Mapping[str, Array]] | None = None,
    ) -> None:
        self.problem = problem
        self._launcher = launcher
        self._limits = limits
        self._run_reference = run_reference
        self._reference: Mapping[str, ReferenceValues] | None = None
        self._buffers: dict[str, Buffer] = {}
        self._inputs: dict[str, Array] = {}
        self._initial: dict[str, Array] = {}
        for array in problem.arrays:
            self._buffers[array.name] = Buffer(
                array.name, array.shape, array.dtype.storage, writable=array.is_output, pitch=array.pitch
            )
        self._make_scratch()
        for name, data in problem.inputs().items():
            self._buffers[name].array[...] = data
            self._inputs[name] = self._buffers[name].array
        for array in problem.outputs:
            if array.direction is Direction.INOUT:
                self._inputs[array.name] = self._buffers[array.name].array.copy()
            else:
                self._initial[array.name] = problem.poison(replace(array, shape=(1,)))
        for array in problem.outputs:
            self._reset(array)

    def run(
        self,
        module: Path,
        geometry: Geometry,
        *,
        blocks: npt.NDArray[np.uint64] | None = None,
        order: Order = Order.FORWARD,
        workers: int = 1,
        deadline_s: float,
    ) -> LaunchReport:
        """One launch; every output held what `reset` puts there, and holds the results afterwards."""
        arguments: list[Argument] = [
            self._buffers[a.name] if isinstance(a, ResolvedArray) else Scalar(a.name, a.value)
            for a in self.problem.args
        ]
        return launch(
            self._launcher,
            module,
            arguments,
            geometry,
            blocks=blocks,
            order=order,
            workers=workers,
            limits=self._limits,
            deadline_s=deadline_s,
        )

    def at(self, problem: Problem) -> None:
        """Take the scalars and the scratch of `problem`, which has the same arrays; scratch is cleared."""
        self.problem = problem
        self._make_scratch()

    def _make_scratch(self) -> None:
        for array in self.problem.scratch:
            held = self._buffers.get(array.name)
            if held is None or held.shape != array.shape:
                if held is not None:
                    held.close()
                empty = array.fill == "none"
                held = Buffer(array.name, array.shape, array.dtype.storage, writable=True, empty=empty)
                self._buffers[array.name] = held
        self.clear_scratch()

    def clear_scratch(self) -> None:
        """Make scratch what it is before a kernel's very first launch: zeros, or what no kernel computes."""
        for array in self.problem.scratch:
            self._clear(array)

    def _clear(self, array: ResolvedArray) -> None:
        held = self._buffers[array.name].array
        held[...] = 0 if array.fill == "zeros" else self.problem.poison(replace(array, shape=(1,)))

    def prepare(self) -> None:
        """Have the reference ready where it takes launches of its own, which use the same arrays."""
        if self._run_reference is not None:
            self.reference()

    def check_all(self) -> Check:
        """Compare every element of every output."""
        return self.problem.check(self.outputs(), self.reference())

    def check_written(self) -> Check:
        """Compare the elements that were written; no other is looked at."""
        written = {a.name: self._written(a) for a in self.problem.outputs}
        if self.problem.contraction is not None and self._reference is None:
            expected: Mapping[str, ReferenceValues] = self.problem.reference_where(self._inputs, written)
        else:
            expected = self.reference()
        return self.problem.check(self.outputs(), expected, written)

    def reference(self) -> Mapping[str, ReferenceValues]:
        """Right results of the whole problem, computed once."""
        if self._reference is None:
            if self._run_reference is None:
                self._reference = self.problem.reference(self._inputs)
            else:
                self._reference = self.problem.reference_from(self._run_reference(self))
        return self._reference

    def outputs(self) -> dict[str, Array]:
        return {a.name: self._buffers[a.name].array for a in self.problem.outputs}

    def reset(self) -> None:
        """Make every output again what it is before a launch: poison, or its input. Scratch stays as it was left."""
        for array in self.problem.outputs:
            self._reset(array)
        for array in self.problem.scratch:
            if array.fill == "none":
                self._clear(array)

    def _reset(self, array: ResolvedArray) -> None:
        held = self._buffers[array.name].array
        if array.direction is Direction.INOUT:
            held[...] = self._inputs[array.name]
            return
        # Only what was written: the pages of a large array are not all touched again.
        bits, poison = _bits(held), _bits(self._initial[array.name])[0]
        if array.has_gaps:
            bits[bits != poison] = poison
            return
        flat = bits.reshape(-1)
        flat[np.flatnonzero(flat != poison)] = poison

    def _written(self, array: ResolvedArray) -> npt.NDArray[np.bool_]:
        held = self._buffers[array.name].array
        if array.direction is Direction.INOUT:
            changed: npt.NDArray[np.bool_] = _bits(held) != _bits(self._inputs[array.name])
            return changed
        return ~self.problem.is_poison(held)

    def close(self) -> None:
        self._inputs.clear()
        for buffer in self._buffers.values():
            buffer.close()


def _bits(values: Array) -> npt.NDArray[Any]:
    """`values` as integers of their size: NaN compares equal to itself."""
    return values.view(f"u{values.dtype.itemsize}")
