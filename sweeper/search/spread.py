"""Points far from each other and from what is known: what a search begins with that knows nothing.

Of a random part of the space each next point is the one whose nearest neighbour among those known is farthest away
(a maximin design: Johnson, Moore and Ylvisaker, Journal of Statistical Planning and Inference 26, 1990). The distance
is a sum over the parameters, of each half for being another level and half for how far away that is in units of the
whole range, so that all levels come up early and combinations of few parameters differ too. Random points of a
constrained space crowd where the constraints leave most combinations.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sweeper.space import Space

__all__ = ["Spread"]

_POOL = 2000


class Spread:
    """Rows of `space`, each far from those that were `add`ed before."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        varied = [j for j, levels in enumerate(space.levels) if len(levels) > 1]
        self._space = space
        self._varied = varied
        self._ranges = np.array([len(space.levels[j]) - 1 for j in varied], dtype=np.float64)
        self._ordered = np.array(
            [all(isinstance(value, int | float) for value in space.levels[j]) for j in varied], dtype=bool
        )
        self._pool = space.sample(rng, _POOL)
        self._points = self._at(self._pool)
        self._nearest = np.full(len(self._pool), np.inf)

    def add(self, row: int) -> None:
        """Keep away from `row`."""
        steps = np.abs(self._points - self._at(np.array([row])))
        differ = (steps > 0).astype(np.float64)
        distances = np.where(self._ordered, 0.5 * steps / self._ranges + 0.5 * differ, differ).sum(axis=1)
        self._nearest = np.minimum(self._nearest, distances)

    def draw_unless(self, taken: npt.NDArray[np.bool_]) -> int | None:
        """The farthest row that is not `taken`, the first of equals; None where all that are looked at are."""
        distances = np.where(taken[self._pool], -1.0, self._nearest)
        place = int(distances.argmax())
        return None if distances[place] < 0 else int(self._pool[place])

    def _at(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return np.asarray(self._space.indices[rows][:, self._varied], dtype=np.float64)
