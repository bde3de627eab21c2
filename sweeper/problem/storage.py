"""An array as it lies in memory: rows a pitch apart, and between them what nobody may read or write.

The gaps hold `poison`: a kernel that reads one computes NaN (with integers: something wrong), and one that
writes there is found by the first element that changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.problem.arguments import ResolvedArray
from sweeper.problem.verify import is_poison, pattern

__all__ = ["GapDamage", "gap_damage", "gap_index", "in_storage", "valid_part"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class GapDamage:
    """`changed` elements between the rows of `array` were written, the first of them at `index`.

    The last number of the index is at least the size of a row: it counts on behind the row's end.
    """

    array: ResolvedArray
    changed: int
    index: tuple[int, ...]

    def __str__(self) -> str:
        array, place = self.array, ", ".join(map(str, self.index))
        return (
            f"wrote between the rows of {array.name}: {self.changed} elements, the first {array.name}[{place}]"
            f" (rows of {array.width} elements, {array.pitch} apart)"
        )


def valid_part(array: ResolvedArray, stored: Array) -> Array:
    """A view of `stored`, the flat memory of `array`, that has its shape and leaves the gaps out."""
    if not array.has_gaps:
        return stored.reshape(array.shape)
    strides = [stored.itemsize, array.pitch * stored.itemsize]
    for size in array.shape[-2:0:-1]:
        strides.append(strides[-1] * size)
    return np.lib.stride_tricks.as_strided(stored, array.shape, strides[::-1])


def in_storage(array: ResolvedArray, data: Array) -> Array:
    """`data` as `array` lies in memory, flat; the same memory where it has no gaps."""
    if not array.has_gaps:
        return np.ascontiguousarray(data).reshape(-1)
    stored = np.full(array.stored_size, pattern(array.dtype.storage)).view(array.dtype.storage)
    _rows(stored, array, 0, array.width, array.rows)[...] = data.reshape(array.rows, array.width)
    return stored


def gap_damage(array: ResolvedArray, stored: Array) -> GapDamage | None:
    """What was written between the rows of `array`, given its flat memory; None where nothing was."""
    if not array.has_gaps:
        return None
    gaps = _rows(stored, array, array.width, array.pitch - array.width, array.rows - 1)
    changed = np.flatnonzero(~is_poison(gaps))
    return GapDamage(array, changed.size, gap_index(array, int(changed[0]))) if changed.size else None


def gap_index(array: ResolvedArray, number: int) -> tuple[int, ...]:
    """Where the element of that `number` among those between rows is, counting on behind its row's end."""
    row, place = divmod(number, array.pitch - array.width)
    return (*(int(i) for i in np.unravel_index(row, array.shape[:-1])), array.width + place)


def _rows(stored: Array, array: ResolvedArray, start: int, width: int, rows: int) -> Array:
    """`rows` runs of `width` elements, a pitch apart, the first one `start` elements into `stored`."""
    item = stored.itemsize
    return np.lib.stride_tricks.as_strided(stored[start:], (rows, width), (array.pitch * item, item))
