"""The points that a model's shares are taken over: those that can be, as far as is known.

A model would answer for any combination of levels, those that no constraint lets be as well, and it has learned
nothing there. Where the feasible space is known, its points are taken. Else a combination counts where each three of
its levels were tried together, which keeps out what constraints on up to three parameters forbid; of few trials, or
many parameters, each two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from sweeper.importance.configurations import Indices
from sweeper.space import Space

__all__ = ["Region", "of_space", "of_trials", "together"]

_POINTS, _REDRAWN, _SWEEPS = 4096, 2048, 3
_TRIALS_FOR_THREE, _PARAMETERS_FOR_THREE = 200, 16


@dataclass(frozen=True)
class Region:
    """A random sample of points, and for each parameter the first ones with that parameter drawn again."""

    points: Indices
    redrawn: tuple[Indices, ...]

    def seen_as(self, tables: Sequence[tuple[int, Indices]]) -> Region:
        """The region in other codes: of each parameter wanted its place here, and the new code of each old one."""

        def converted(points: Indices) -> Indices:
            return np.array([codes[points[:, place]] for place, codes in tables]).T

        return Region(converted(self.points), tuple(converted(self.redrawn[place]) for place, _ in tables))


def of_trials(codes: Indices, counts: Sequence[int], rng: np.random.Generator) -> Region:
    """Combinations whose levels, `together(codes)` by as many, stand together somewhere in `codes` (points,
    parameters).

    Drawn by Gibbs sampling from the points themselves: each parameter in turn takes any level that goes with the
    rest, so that in the long run every combination that can be reached is as likely.
    """
    width = len(counts)
    seen = _Seen(codes, counts, together(codes))
    points = codes[np.resize(rng.permutation(len(codes)), _POINTS)]
    for _ in range(_SWEEPS):
        for j in rng.permutation(width).tolist():
            points[:, j] = seen.draw(points, j, rng)
    redrawn = []
    for j in range(width):
        again = points[:_REDRAWN].copy()
        again[:, j] = seen.draw(again, j, rng)
        redrawn.append(again)
    return Region(points, tuple(redrawn))


def together(codes: Indices) -> int:
    """How many levels at a time must have been tried together."""
    trials, width = codes.shape
    return 3 if trials >= _TRIALS_FOR_THREE and 3 <= width <= _PARAMETERS_FOR_THREE else 2


class _Seen:
    """Which levels stand together in `codes`, `by` two or three at a time."""

    def __init__(self, codes: Indices, counts: Sequence[int], by: int) -> None:
        self._levels = counts
        self._tables: list[list[tuple[list[int], npt.NDArray[np.bool_]]]] = []
        for j in range(len(counts)):
            others = [k for k in range(len(counts)) if k != j]
            self._tables.append([])
            for chosen in combinations(others, min(by - 1, len(others))):
                axes = [*chosen, j]
                table = np.zeros([counts[k] for k in axes], dtype=bool)
                table[tuple(codes[:, k] for k in axes)] = True
                self._tables[-1].append((list(chosen), table))

    def draw(self, points: Indices, j: int, rng: np.random.Generator) -> Indices:
        """A level of parameter `j` for each of `points`, any that goes with its others."""
        allowed = np.ones((len(points), self._levels[j]), dtype=bool)
        for chosen, table in self._tables[j]:
            allowed &= table[tuple(points[:, k] for k in chosen)]
        levels: Indices = (rng.random(allowed.shape) * allowed).argmax(axis=1)
        return levels


def of_space(space: Space, rng: np.random.Generator) -> Region:
    """Points of a feasible space, as indices of its levels."""
    rows = rng.integers(len(space), size=_POINTS)
    points = np.asarray(space.indices[rows], dtype=np.int64)
    redrawn = [points[:_REDRAWN].copy() for _ in space.names]
    for place in range(_REDRAWN):
        others = np.asarray(space.indices[space.neighbours(int(rows[place]), "hamming")], dtype=np.int64)
        changed = (others != points[place]).argmax(axis=1)
        for j in np.unique(changed).tolist():
            choices = others[changed == j, j]
            chosen = int(rng.integers(len(choices) + 1))
            if chosen < len(choices):
                redrawn[j][place, j] = choices[chosen]
    return Region(points, tuple(redrawn))
