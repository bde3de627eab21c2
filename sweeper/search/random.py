"""Uniform sampling without replacement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.search.base import SpaceStrategy, checked_options
from sweeper.space import Space

__all__ = ["Random", "Shuffle"]


class Shuffle:
    """A random permutation of range(size), one element at a time.

    Fisher and Yates' shuffle that keeps only the places it has exchanged: memory grows with the number
    of elements drawn, not with `size`.
    """

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self._size = size
        self._rng = rng
        self._drawn = 0
        self._moved: dict[int, int] = {}

    def draw(self) -> int:
        """The next element; IndexError when all were drawn."""
        if self._drawn >= self._size:
            raise IndexError("every element was drawn")
        place = int(self._rng.integers(self._drawn, self._size))
        element = self._moved.get(place, place)
        self._moved[place] = self._moved.get(self._drawn, self._drawn)
        self._moved.pop(self._drawn, None)
        self._drawn += 1
        return element

    def draw_unless(self, taken: npt.NDArray[np.bool_]) -> int:
        """The next element that is not `taken`."""
        element = self.draw()
        while taken[element]:
            element = self.draw()
        return element


class Random(SpaceStrategy):
    """Random search. A search that starts from stored trials goes on where they left off."""

    independent = True

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
        objectives: int = 1,
    ) -> None:
        super().__init__(space, seed, checked_options("random", options or {}, {}), objectives)
        self._shuffle = Shuffle(len(space), np.random.default_rng(seed))

    def _propose(self) -> int:
        return self._shuffle.draw_unless(self._taken)
