"""Mixed-radix codes of level indices: one integer a configuration, in lexicographic order.

The digit of the first parameter is the most significant. A code is kept in one 64-bit word where the
product of all level counts allows it, else in several words of up to 31 bits each, so that a product
of any size works with int64 arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_ROWS", "MixedRadix", "RowIndex"]

MAX_ROWS: Final = 2**31 - 1
_ONE_WORD: Final = 2**62
_WORD_OF_SEVERAL: Final = 2**31
_CHUNK_ROWS: Final = 1 << 14

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class MixedRadix:
    """Where each parameter's digit stands: `word[j]` and the `stride[j]` in it; `sizes` of the words."""

    counts: tuple[int, ...]
    word: tuple[int, ...]
    stride: tuple[int, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, counts: Sequence[int]) -> MixedRadix:
        """The layout for parameters with `counts` levels each."""
        limit = _ONE_WORD if math.prod(counts) <= _ONE_WORD else _WORD_OF_SEVERAL
        sizes, from_last = [1], []
        for count in reversed(counts):
            if sizes[-1] * count > limit:
                sizes.append(1)
            from_last.append((len(sizes) - 1, sizes[-1]))
            sizes[-1] *= count
        digits = from_last[::-1]
        word = tuple(len(sizes) - 1 - w for w, _ in digits)
        return cls(tuple(counts), word, tuple(s for _, s in digits), tuple(reversed(sizes)))

    @property
    def index_dtype(self) -> np.dtype[Any]:
        """A signed type in which differences of level indices do not wrap."""
        return np.dtype(np.int16 if max(self.counts, default=0) < 2**15 else np.int32)

    def encode(self, digits: Sequence[Array], positions: Sequence[int]) -> Array:
        """Codes, shape (words, rows), from the index columns of the parameters at `positions`.

        Digits of the other parameters are 0, so that codes of disjoint parameters add up.
        """
        rows = len(digits[0]) if digits else 1
        codes = np.zeros((len(self.sizes), rows), dtype=np.int64)
        for digit, position in zip(digits, positions, strict=True):
            codes[self.word[position]] += digit.astype(np.int64) * self.stride[position]
        return codes

    def decode(self, codes: Array) -> Array:
        """Level indices, shape (rows, parameters), of codes of shape (words, rows)."""
        rows = codes.shape[1]
        indices = np.empty((rows, len(self.counts)), dtype=self.index_dtype)
        for start in range(0, rows, _CHUNK_ROWS):
            self._decode_into(indices[start : start + _CHUNK_ROWS], codes[:, start : start + _CHUNK_ROWS])
        return indices

    def _decode_into(self, indices: Array, codes: Array) -> None:
        rest = list(codes)
        for position in reversed(range(len(self.counts))):
            word, count = self.word[position], self.counts[position]
            quotient = rest[word] // count
            # A digit is below its count, so that the narrower type holds it.
            np.subtract(rest[word], quotient * count, out=indices[:, position], casting="unsafe")
            rest[word] = quotient

    def sort(self, codes: Array) -> Array:
        """`codes` in ascending order; in place where it can."""
        if codes.shape[0] > 1:
            return codes[:, np.lexsort(codes[::-1])]
        if not all(_ascending(part) for part in _overlapping_chunks(codes[0])):
            codes[0].sort()
        return codes


def _overlapping_chunks(values: Array) -> Iterator[Array]:
    for start in range(0, len(values), _CHUNK_ROWS):
        yield values[start : start + _CHUNK_ROWS + 1]


def _ascending(values: Array) -> bool:
    return bool((values[1:] >= values[:-1]).all())


class RowIndex:
    """Finds the rows of codes among sorted, distinct codes.

    Codes of several words are narrowed word by word: the rank of a word's prefix among the prefixes
    that occur is below the row count, so rank × size + next word fits 64 bits.
    """

    def __init__(self, radix: MixedRadix, codes: Array) -> None:
        self._sizes = radix.sizes
        self._stages: list[Array] = []
        keys = codes[0]
        for size, word in zip(radix.sizes[1:], codes[1:], strict=True):
            prefixes, ranks = np.unique(keys, return_inverse=True)
            self._stages.append(prefixes)
            keys = ranks.reshape(-1) * size + word
        self._stages.append(keys)

    def find(self, codes: Array) -> npt.NDArray[np.int64]:
        """The row of each code of shape (words, queries), or -1."""
        found = np.ones(codes.shape[1], dtype=bool)
        keys = codes[0]
        rank = np.zeros_like(keys)
        for stage, known in enumerate(self._stages):
            if stage:
                keys = rank * self._sizes[stage] + codes[stage]
            rank = np.searchsorted(known, keys)
            found &= known[np.minimum(rank, len(known) - 1)] == keys
        return np.where(found, rank, -1)
