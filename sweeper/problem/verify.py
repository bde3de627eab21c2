"""Verification: outputs poisoned before a launch, and compared element by element after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.errors import KernelError
from sweeper.model import Check, Mismatch
from sweeper.problem.arguments import ResolvedArray
from sweeper.problem.reference import ReferenceValues

__all__ = ["check", "fetched", "is_poison", "pattern", "poison"]

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Places = range | npt.NDArray[np.intp]

# Quiet NaNs with a payload that no arithmetic produces: a device's own NaN is all ones after the sign,
# a CPU's has an empty payload, so an element that was never written is told from one computed as NaN.
_NAN_BITS = {8: 0x7FFD_5A5A_C3C3_5A5A, 4: 0x7FD5_A5C3, 2: 0x7E5A}
_BFLOAT16_BITS = 0x7FDA
# The one NaN of float8_e4m3, but for its sign.
_FLOAT8_BITS = 0x7F
_INTEGER_BITS = {8: 0xA5C3_5A3C_B4D2_4B2D, 4: 0xA5C3_5A3C, 2: 0xA5C3, 1: 0xA5}

_MOST_MISMATCHES = 5
# Elements compared at once: a core's cache holds the temporaries.
_CHUNK = 1 << 16


def poison(array: ResolvedArray) -> Array:
    """An array's content before a checked launch: NaN, or for integers a fixed pattern."""
    bits = pattern(array.dtype.storage)
    return np.full(array.shape, bits).view(array.dtype.storage)


def is_poison(values: Array) -> Mask:
    """Which elements still hold `poison`, bit for bit.

    An int8 kernel may well compute the pattern's value: for one, this is no proof of anything.
    """
    bits = pattern(values.dtype)
    same: Mask = values.view(bits.dtype) == bits
    return same


def pattern(storage: np.dtype[Any]) -> np.unsignedinteger[Any]:
    """The bits of a poisoned element of that type."""
    kind: Any = np.dtype(f"u{storage.itemsize}").type
    if storage.kind in "iu":
        return kind(_INTEGER_BITS[storage.itemsize])  # type: ignore[no-any-return]
    extension = storage.kind == "V"
    bits = {1: _FLOAT8_BITS, 2: _BFLOAT16_BITS} if extension else _NAN_BITS
    return kind(bits[storage.itemsize])  # type: ignore[no-any-return]


def check(
    outputs: Sequence[ResolvedArray],
    got: Mapping[str, Array],
    reference: Mapping[str, ReferenceValues],
    written: Mapping[str, Mask] | None = None,
) -> Check:
    """Compare `got` with `reference`: passed only if every compared element is within its bound.

    NaN and infinities fail, whatever the reference holds. With `written`, only the elements in its masks
    count, which must not be empty. `max_error` and `error_ratio` are infinite where an element is not
    finite. Raises KernelError where an output is missing or its type, shape or size differs.
    """
    tally = _Tally()
    unwritten = [array.name for array in outputs if not _compare(array, got, reference, written, tally)]
    notes = [f"no element of {name} was written" for name in unwritten]
    if tally.wrong:
        notes.insert(0, tally.describe())
        never = sum(int(np.count_nonzero(is_poison(got[a.name]))) for a in outputs) if written is None else 0
        notes += [f"{never} still hold what was there before the launch"] if never else []
    return Check(
        passed=not tally.wrong and not unwritten,
        checked=tally.checked,
        wrong=tally.wrong,
        max_error=tally.max_error,
        error_ratio=tally.ratio,
        error_index=tally.index,
        mismatches=tuple(tally.mismatches),
        note="; ".join(notes),
    )


@dataclass(slots=True)
class _Tally:
    """What the comparison has seen so far, over all outputs."""

    checked: int = 0
    wrong: int = 0
    not_finite: int = 0
    max_error: float = 0.0
    ratio: float = 0.0
    index: tuple[int, ...] | None = None
    mismatches: list[Mismatch] = field(default_factory=list)

    def add(self, array: ResolvedArray, places: Places, got: Array, want: Array, bound: Array) -> None:
        """Compare one chunk; `places` are its elements' flat indices in `array`."""
        error, ratio, right = _errors(got, want, bound)
        self.checked += got.size
        self.max_error = max(self.max_error, float(error.max()))
        worst = int(ratio.argmax())
        if ratio[worst] > self.ratio:
            self.ratio = float(ratio[worst])
            self.index = _index(array, places[worst])
        if right.all():
            return
        wrong = np.flatnonzero(~right)
        self.wrong += wrong.size
        self.not_finite += int(np.count_nonzero(np.isinf(error)))
        for i in wrong[: _MOST_MISMATCHES - len(self.mismatches)]:
            index = _index(array, places[i])
            self.mismatches.append(
                Mismatch(array.name, index, float(got[i]), float(want[i]), float(bound[i]))
            )

    def describe(self) -> str:
        text = f"{self.wrong} of {self.checked} elements are wrong"
        return text + (f", {self.not_finite} of them not finite" if self.not_finite else "")


def _errors(got: Array, want: Array, bound: Array) -> tuple[Array, Array, Mask]:
    """|got − want|, its ratio to the bound, and which elements are right; not finite is infinitely wrong."""
    if want.dtype.kind == "i":
        whole = got.astype(np.int64)
        right = whole == want
        # Wrong by any amount is wrong: float64 may not even see the difference of large integers.
        ratio = np.where(right, 0.0, np.inf)
        return np.abs(whole.astype(np.float64) - want), ratio, right
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(np.float64) - want)
        finite = np.isfinite(error)
        if not finite.all():
            error[~finite] = np.inf
        right = (error <= bound) & finite
        return error, error / np.maximum(bound, np.finfo(np.float64).tiny), right


def _index(array: ResolvedArray, place: int | np.intp) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(place), array.shape))


def _compare(
    array: ResolvedArray,
    got: Mapping[str, Array],
    reference: Mapping[str, ReferenceValues],
    written: Mapping[str, Mask] | None,
    tally: _Tally,
) -> bool:
    """Compare one output; False if no element of it was there to compare."""
    found = fetched(array, got)
    want = reference[array.name]
    values, bound = want.values.reshape(-1), want.bound.reshape(-1)
    where = want.where
    mask = None if written is None else written.get(array.name)
    if mask is not None and (problem := _unfit(mask, array, where)):
        raise KernelError(f"mask of {array}: {problem}")
    if where is None and mask is not None:
        where = np.flatnonzero(mask)
        values, bound = values[where], bound[where]
    if where is not None:
        found = found[where]
    for start in range(0, found.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        places: Places = range(start, start + _CHUNK) if where is None else where[part]
        tally.add(array, places, found[part], values[part], bound[part])
    return found.size > 0


def _unfit(mask: Mask, array: ResolvedArray, where: npt.NDArray[np.intp] | None) -> str:
    """What is wrong with a mask of written elements; an empty text if nothing is."""
    if mask.shape != array.shape:
        return f"its shape is {mask.shape}"
    if where is not None and np.count_nonzero(mask) != where.size:
        return f"it has {np.count_nonzero(mask)} elements, but the reference was computed for {where.size}"
    return ""


def fetched(array: ResolvedArray, got: Mapping[str, Array]) -> Array:
    """The flat content of an output, after a check that it is what was declared."""
    if array.name not in got:
        raise KernelError(f"output {array} was not fetched")
    data = got[array.name]
    if data.dtype != array.dtype.storage or data.shape != array.shape:
        raise KernelError(
            f"output {array}: {data.nbytes} bytes came back as {data.dtype} {data.shape}, "
            f"but {array.nbytes} bytes are declared",
            hint="the kernel's description and the buffers must agree on type and shape",
        )
    return np.ascontiguousarray(data).reshape(-1)
