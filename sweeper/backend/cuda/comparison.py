"""What a launch wrote against what is right: on the device, element by element; a record of it comes back.

The `Check` is that of `sweeper.problem.verify`, number for number. Beside it the results are compared bit
for bit with those of an earlier launch. Where the device has no room for the reference, the host compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sweeper.backend.cuda.arguments import Arguments
from sweeper.backend.cuda.arrays import DeviceArray, copy, poison_word
from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.device_code import PART_BYTES, RECORD, Split, type_code
from sweeper.backend.cuda.reference import DeviceReference
from sweeper.model import Check, Mismatch
from sweeper.problem.arguments import ResolvedArray
from sweeper.problem.reference import ReferenceValues
from sweeper.problem.storage import GapDamage, gap_damage, gap_index, valid_part

__all__ = ["Comparison", "DeviceComparison", "HostComparison", "Verdict", "check_of", "comparison_bytes"]

Array = npt.NDArray[Any]
Records = npt.NDArray[np.void]

_NOWHERE = 2**64 - 1
_GAPS_BYTES = 16


@dataclass(frozen=True, slots=True)
class Verdict:
    """`check` against the reference; `differing` elements are not, bit for bit, what was kept.

    `gaps` says what was written between the rows of outputs.
    """

    check: Check
    differing: int
    gaps: tuple[GapDamage, ...] = ()


class Comparison(Protocol):
    """Compares what the outputs of one set of arguments hold."""

    def queue(self, *, negated: bool = False) -> None:
        """Compare once the stream has come so far; with `negated`, to the negative of the reference."""
        ...

    def read(self) -> Verdict:
        """What was queued has come to. Waits for the device."""
        ...

    def keep(self) -> None:
        """Later comparisons are with what the outputs hold now, too."""
        ...

    def forget(self) -> None:
        """Nothing is kept any more."""
        ...


def check_of(compared: Sequence[tuple[ResolvedArray, Any]]) -> Check:
    """The check that the device's records (`RECORD`) of all outputs amount to."""
    wrong = sum(int(record["wrong"]) for _, record in compared)
    checked = sum(array.size for array, _ in compared)
    ratio, index = 0.0, None
    mismatches: list[Mismatch] = []
    for array, record in compared:
        if record["ratio"] > ratio and int(record["index"]) != _NOWHERE:
            ratio, index = float(record["ratio"]), _index(array, record["index"])
        for found in record["first"][: int(record["listed"])]:
            values = (float(found[name]) for name in ("got", "want", "bound"))
            mismatches.append(Mismatch(array.name, _index(array, found["index"]), *values))
    return Check(
        passed=wrong == 0,
        checked=checked,
        wrong=wrong,
        max_error=max(float(record["error"]) for _, record in compared),
        error_ratio=ratio,
        error_index=index,
        mismatches=tuple(mismatches[: len(compared[0][1]["first"])]),
        note=_note(wrong, checked, [record for _, record in compared]) if wrong else "",
    )


def _note(wrong: int, checked: int, records: Sequence[Any]) -> str:
    not_finite = sum(int(record["not_finite"]) for record in records)
    never = sum(int(record["poison"]) for record in records)
    text = f"{wrong} of {checked} elements are wrong"
    text += f", {not_finite} of them not finite" if not_finite else ""
    return text + (f"; {never} still hold what was there before the launch" if never else "")


def _index(array: ResolvedArray, place: Any) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(place), array.shape))


def comparison_bytes(outputs: Sequence[ResolvedArray]) -> int:
    """What a `DeviceComparison` of these outputs takes on the device, beside the reference."""
    return sum(
        a.nbytes * (2 if a.has_gaps else 1) + Split.of(a.size).parts * PART_BYTES + RECORD.itemsize
        for a in outputs
    )


@dataclass(frozen=True, slots=True)
class _Output:
    """One output and what its comparison needs: buffers for parts of the tally and for earlier results.

    One whose rows do not follow each other is `gathered` first, and `gaps` is a record of what lies between.
    """

    array: DeviceArray
    reference: DeviceReference
    split: Split
    parts: Any
    kept: Any
    pattern: int
    gathered: Any = None
    gaps: Any = None

    @property
    def results(self) -> int:
        """Where its elements follow each other."""
        return self.array.pointer if self.gathered is None else int(self.gathered)


class DeviceComparison:
    """Compares on the device. Raises TrialFailed where it has no memory left."""

    def __init__(
        self, device: CudaDevice, arguments: Arguments, references: Mapping[str, DeviceReference]
    ) -> None:
        self._device = device
        self._problem = arguments.problem
        self._outputs: list[_Output] = []
        for array in arguments.problem.outputs:
            split = Split.of(array.size)
            output = _Output(
                array=arguments.arrays[array.name],
                reference=references[array.name],
                split=split,
                parts=device.allocate(split.parts * PART_BYTES),
                kept=device.allocate(array.nbytes),
                pattern=poison_word(arguments.problem, array, array.dtype.bytes),
                gathered=device.allocate(array.nbytes) if array.has_gaps else None,
                gaps=device.allocate(_GAPS_BYTES) if array.has_gaps else None,
            )
            self._outputs.append(output)
        self._records: Records = np.zeros(len(self._outputs), RECORD)
        self._on_device = device.allocate(self._records.nbytes)
        self._is_kept = False

    def queue(self, *, negated: bool = False) -> None:
        code = self._device.code
        for n, output in enumerate(self._outputs):
            if output.gathered is not None:
                output.array.gather(int(output.gathered))
                output.array.find_gap_writes(self._problem, int(output.gaps))
            got, wanted, split = output.results, output.reference.wanted, output.split
            previous = int(output.kept) if self._is_kept and not negated else got
            type_, parts = type_code(output.array.array.dtype), int(output.parts)
            record = int(self._on_device) + n * RECORD.itemsize
            code.compare(
                got,
                previous,
                wanted,
                split,
                type_=type_,
                negated=negated,
                pattern=output.pattern,
                parts=parts,
            )
            code.conclude(got, wanted, split, type_=type_, negated=negated, parts=parts, record=record)

    def read(self) -> Verdict:
        self._device.drv.memcpy_dtoh(self._records.view(np.uint8), int(self._on_device))
        compared = [(o.array.array, record) for o, record in zip(self._outputs, self._records, strict=True)]
        differing = sum(int(record["differing"]) for record in self._records)
        return Verdict(check_of(compared), differing, tuple(self._gap_writes()))

    def _gap_writes(self) -> Iterator[GapDamage]:
        for output in self._outputs:
            if output.gaps is None:
                continue
            found = np.zeros(2, np.uint64)
            self._device.drv.memcpy_dtoh(found.view(np.uint8), int(output.gaps))
            changed, first = (int(word) for word in found)
            if changed:
                array = output.array.array
                yield GapDamage(array, changed, gap_index(array, _NOWHERE - first))

    def keep(self) -> None:
        for output in self._outputs:
            copy(self._device, int(output.kept), output.results, output.array.array.nbytes)
        self._is_kept = True

    def forget(self) -> None:
        self._is_kept = False


class HostComparison:
    """Fetches the outputs and compares on the host: for a reference that the device has no room for."""

    def __init__(self, arguments: Arguments, references: Mapping[str, ReferenceValues]) -> None:
        self._arguments = arguments
        self._references = references
        self._kept: dict[str, Array] = {}
        self._fetched: dict[str, Array] = {}
        self._negated = False

    def queue(self, *, negated: bool = False) -> None:
        self._negated = negated

    def read(self) -> Verdict:
        problem, arrays = self._arguments.problem, self._arguments.arrays
        stored = {array: arrays[array.name].download_stored() for array in problem.outputs}
        damage = (gap_damage(array, data) for array, data in stored.items())
        gaps = tuple(found for found in damage if found is not None)
        self._fetched = {array.name: valid_part(array, data) for array, data in stored.items()}
        if self._negated:
            negatives = {name: np.negative(data) for name, data in self._fetched.items()}
            return Verdict(problem.check(negatives, self._references), 0, gaps)
        check = problem.check(self._fetched, self._references)
        kept = self._kept.items()
        differing = sum(_differing_bits(self._fetched[name], data) for name, data in kept)
        return Verdict(check, differing, gaps)

    def keep(self) -> None:
        self._kept = self._fetched

    def forget(self) -> None:
        self._kept = {}


def _differing_bits(a: Array, b: Array) -> int:
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    return int(np.count_nonzero(a.view(unsigned) != b.view(unsigned)))
