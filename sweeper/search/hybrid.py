"""Density-ratio search over the enumerated space, in turns with the neighbourhood of the best points.

Like TPE it ranks points by how much likelier they are among the good configurations than among the
rest; unlike it, it scores every feasible point instead of drawing proposals and moving them to the
nearest feasible one, and it looks at pairs of parameters, which is where tile sizes interact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.search.base import Number, SpaceStrategy, checked_options
from sweeper.search.random import Shuffle
from sweeper.space import Space

__all__ = ["Hybrid"]

_GOOD_SHARE = 0.2
_PAIR_WEIGHT = 0.3
_PRIOR = 0.5
_NOISE = 0.5
_LOCAL_SHARE = 0.4
_LOCAL_CENTRES = 8
# Points scored at a time: beyond this a random part of the space, drawn once, stands for all of it.
_MAX_SCORED = 100_000


class Hybrid(SpaceStrategy):
    """The search described above; `startup` configurations are random before it begins to learn."""

    def __init__(self, space: Space, seed: int = 0, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(space, seed, checked_options("hybrid", options or {}, {"startup": Number(12)}))
        self._rng = np.random.default_rng(seed)
        self._shuffle = Shuffle(len(space), np.random.default_rng([seed, 1]))
        self._rows: list[int] = []
        self._values: list[float] = []
        self._codes: _Codes | None = None

    def _observe(self, row: int, value: float | None, *, asked: bool) -> None:
        self._rows.append(row)
        self._values.append(math.inf if value is None else value)

    def _propose(self) -> int:
        if len(self._rows) < self._options["startup"] or not math.isfinite(min(self._values)):
            return self._shuffle.draw_unless(self._taken)
        if self._codes is None:
            self._codes = _Codes(self._space, self._rng)
        order = np.argsort(self._values, kind="stable")
        ranked = np.asarray(self._rows)[order]
        near = self._near(ranked[: self._finite]) if self._rng.random() < _LOCAL_SHARE else None
        candidates = self._candidates() if near is None else near
        score = self._codes.score(candidates, ranked, max(3, math.ceil(_GOOD_SHARE * len(ranked))))
        score += _NOISE * self._rng.gumbel(size=len(score))
        return int(candidates[int(score.argmax())])

    @property
    def _finite(self) -> int:
        return sum(map(math.isfinite, self._values))

    def _near(self, best: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """Unseen rows one parameter away from the best point that has any."""
        for row in best[:_LOCAL_CENTRES].tolist():
            rows = self._space.neighbours(row, "hamming")
            rows = rows[~self._taken[rows]]
            if len(rows):
                return rows
        return None

    def _candidates(self) -> npt.NDArray[np.int64]:
        rows = np.flatnonzero(~self._taken)
        if len(rows) > _MAX_SCORED:
            rows = self._rng.choice(rows, _MAX_SCORED, replace=False)
        return rows


class _Codes:
    """Level indices of every point, one parameter and every pair of parameters at a time."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._indices = space.indices
        self._sizes = [len(levels) for levels in space.levels]
        varied = [j for j, size in enumerate(self._sizes) if size > 1]
        self._terms = [(j, None, 1.0) for j in varied]
        self._terms += [(j, k, _PAIR_WEIGHT) for j in varied for k in varied if k < j]

    def score(
        self, rows: npt.NDArray[np.int64], ranked: npt.NDArray[np.int64], good: int
    ) -> npt.NDArray[np.float64]:
        """log g(x)/b(x) of each of `rows`, summed over smoothed histograms of the good and the other points."""
        total = np.zeros(len(rows))
        for first, second, weight in self._terms:
            size = self._sizes[first] * (1 if second is None else self._sizes[second])
            seen = self._code(ranked, first, second)
            g = np.bincount(seen[:good], minlength=size) + _PRIOR
            b = np.bincount(seen[good:], minlength=size) + _PRIOR
            ratio = weight * (np.log(g / g.sum()) - np.log(b / b.sum()))
            total += ratio[self._code(rows, first, second)]
        return total

    def _code(self, rows: npt.NDArray[np.int64], first: int, second: int | None) -> npt.NDArray[np.int64]:
        code = self._indices[rows, first].astype(np.int64)
        return code if second is None else code * self._sizes[second] + self._indices[rows, second]
