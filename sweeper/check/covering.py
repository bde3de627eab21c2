"""A few configurations that stand for all: every level, then every pair of levels, as far as a limit allows.

Most faults that depend on parameters need one or two of them at particular levels (Kuhn, Wallace and
Gallo, "Software fault interactions and implications for software testing", 2004), so a two-way covering
array finds them at a fraction of the product.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Covering", "cover"]

# Rows looked at for every choice; a larger space is thinned out evenly.
_MOST_CANDIDATES = 1 << 16

Rows = npt.NDArray[np.integer[Any]]
Table = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Covering:
    """The chosen `rows`, and how many of the levels and pairs of levels that occur in any row they have."""

    rows: tuple[int, ...]
    levels: int
    levels_of: int
    pairs: int
    pairs_of: int


def cover(indices: Rows, counts: Sequence[int], *, first: Sequence[int] = (), limit: int) -> Covering:
    """Up to `limit` rows of `indices` (level indices, one column for each of `counts` levels).

    The rows in `first` are taken before any other. Then the row follows that has most uncovered levels,
    and among those the one with most uncovered pairs, until nothing is left uncovered: greedy, and the
    same for the same input.
    """
    needed = _Uncovered(indices, counts)
    levels_of, pairs_of = needed.left()
    candidates = _candidates(indices, counts)
    chosen: list[int] = []
    for row in dict.fromkeys(first):
        if len(chosen) < limit:
            chosen.append(row)
            needed.take(indices[row])
    while len(chosen) < limit and any(needed.left()):
        gains = needed.gains(indices[candidates])
        best = int(gains.argmax())
        if gains[best] == 0:
            break
        chosen.append(int(candidates[best]))
        needed.take(indices[candidates[best]])
    levels, pairs = needed.left()
    return Covering(tuple(chosen), levels_of - levels, levels_of, pairs_of - pairs, pairs_of)


class _Uncovered:
    """The levels and pairs of levels that occur in some row and in none of those taken so far."""

    def __init__(self, indices: Rows, counts: Sequence[int]) -> None:
        self._levels: list[Table] = [np.zeros(count, np.bool_) for count in counts]
        self._pairs: dict[tuple[int, int], Table] = {
            (i, j): np.zeros((counts[i], counts[j]), np.bool_)
            for i, j in itertools.combinations(range(len(counts)), 2)
        }
        for table, at in self._cells(indices):
            table[at] = True

    def _cells(self, indices: Rows) -> Iterator[tuple[Table, Any]]:
        """Every table, and where in it the given rows are."""
        for i, table in enumerate(self._levels):
            yield table, indices[..., i]
        for (i, j), table in self._pairs.items():
            yield table, (indices[..., i], indices[..., j])

    def left(self) -> tuple[int, int]:
        """How many levels, and how many pairs."""
        levels = sum(int(np.count_nonzero(table)) for table in self._levels)
        return levels, sum(int(np.count_nonzero(table)) for table in self._pairs.values())

    def take(self, row: Rows) -> None:
        for table, at in self._cells(row):
            table[at] = False

    def gains(self, indices: Rows) -> npt.NDArray[np.int64]:
        """What each row would cover; a level counts for more than all pairs."""
        gains = np.zeros(len(indices), np.int64)
        for table, at in self._cells(indices):
            gains += table[at] * np.int64(1 if table.ndim == 2 else len(self._pairs) + 1)
        return gains


def _candidates(indices: Rows, counts: Sequence[int]) -> npt.NDArray[np.int64]:
    """All rows, or evenly many of them with at least one for each level that occurs."""
    rows = len(indices)
    if rows <= _MOST_CANDIDATES:
        return np.arange(rows)
    thinned = np.linspace(0, rows - 1, _MOST_CANDIDATES).astype(np.int64)
    one_each = [
        int((indices[:, i] == level).argmax()) for i, count in enumerate(counts) for level in range(count)
    ]
    return np.unique(np.concatenate([thinned, np.array(one_each, np.int64)]))
