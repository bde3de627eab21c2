"""A search that begins with what was measured under other conditions: another shape, precision class or GPU.

The logarithm of a configuration's time is taken to be what the others say plus a difference that is alike for like
configurations: a Gaussian process of the ratio, whose mean (how much faster this GPU is, how much larger this
problem) is unknown. So the first asked is the others' best; the next is the best that is not almost the same, and
once an answer is there, whatever its surroundings are known to lose or gain here counts. Where several say something,
the nearest counts most, and who is right is learned likewise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sweeper.search.base import Strategy, Told
from sweeper.search.gain import expected_gain
from sweeper.search.one_thread import on_one_thread
from sweeper.search.relevance import Beliefs, Groups, Relevance
from sweeper.space import Space

__all__ = ["FIRST", "Transfer"]

Floats = npt.NDArray[np.float64]

FIRST = 10
"""Configurations that are asked by what others say; from then on their times are one thing to learn from of several."""

_BELIEFS = Beliefs(length=1.5, logit=0.0, noise=0.01)
_DEVIATION = 0.2
"""Of the logarithm of the ratio: conditions that are told of each other change times by a fifth, beside the mean."""
_SEVERAL = 0.1
"""The same between what several others say."""
_OPTIMISM = (0.5, 2.0)
"""Deviations that a time may be below what is expected, in turns: to take what is known, and to find out more."""
_FAILED = math.log(4)
"""What a failure is worth in a model of times: that much slower than the best."""
_MAX_CANDIDATES = 20_000


class Transfer:
    """`strategy`, after `first` configurations chosen by `estimates`, times by row of `space`, the nearest first.

    NaN is a time that is not known, and infinity a failure; neither is asked. The strategy is told all.
    """

    independent = False

    def __init__(
        self, strategy: Strategy, space: Space, estimates: Sequence[Floats], first: int = FIRST
    ) -> None:
        self._strategy = strategy
        self._left = first
        self._given: set[int] = set()
        self._expected, deviations, self._rows, self._best = _combined(estimates)
        # A space without a choice is one of a single parameter with a single level.
        varied = [j for j, levels in enumerate(space.levels) if len(levels) > 1]
        groups = Groups(
            [len(space.levels[j]) for j in varied] or [1],
            [all(isinstance(v, int | float) for v in space.levels[j]) for j in varied] or [True],
        )
        indices = space.indices[self._rows][:, varied]
        indices = indices if varied else np.zeros((len(self._rows), 1), dtype=np.int64)
        self._covariance = Relevance.believed(groups, _BELIEFS)
        self._codes = groups.codes(indices)
        self._deviations = deviations
        self._prior = _DEVIATION**2 + (deviations**2).sum(axis=0)
        self._place = {row: place for place, row in enumerate(self._rows.tolist())}
        self._asked: list[int] = []
        self._across = np.empty((0, len(self._rows)))
        self._told: dict[int, float | None] = {}

    def ask(self, count: int = 1) -> list[int]:
        if count < 0:
            raise ValueError(f"cannot ask for {count} rows")
        rows: list[int] = []
        while len(rows) < count and self._left > 0 and len(self._asked) < len(self._rows):
            self._left -= 1
            row = self._promising()
            # The strategy may have been told of it, or have asked for it, before.
            if not self._strategy.has_taken(row):
                self._given.add(row)
                rows.append(row)
        while len(rows) < count:
            more = self._strategy.ask(count - len(rows))
            if not more:
                break
            rows += [row for row in more if row not in self._given]
        return rows

    def tell(self, row: int, value: Told) -> None:
        self._strategy.tell(row, value)
        place = self._place.get(row)
        if place is not None and self._left > 0:
            if place not in self._asked:
                self._add(place)
            self._told[place] = value if isinstance(value, float | int) and value > 0 else None

    def expected_gain(self) -> float | None:
        """What the strategy expects to gain."""
        return expected_gain(self._strategy)

    def has_taken(self, row: int) -> bool:
        return row in self._given or self._strategy.has_taken(row)

    @on_one_thread
    def likely(self, count: int) -> list[int]:
        """The best by what others say, corrected by what was told; then what the strategy may well ask."""
        if self._left == 0:
            return [row for row in self._strategy.likely(count) if row not in self._given]
        hoped = self._expected + self._difference()[0]
        hoped[self._asked] = math.inf
        order = np.argsort(hoped, kind="stable")[: max(0, min(count, len(hoped) - len(self._asked)))]
        return [row for row in self._rows[order].tolist() if not self._strategy.has_taken(row)]

    @on_one_thread
    def _promising(self) -> int:
        """The row that may be fastest, the first of equals; it counts as asked."""
        while self._best:
            place = self._best.pop(0)
            if place not in self._asked:
                return self._chosen(place)
        optimism = _OPTIMISM[len(self._asked) % len(_OPTIMISM)]
        correction, deviation = self._difference()
        hoped = -self._expected - correction + optimism * deviation
        # Rounded, so that the last bits of a library's sums do not choose between equal points.
        hoped = hoped.round(5)
        hoped[self._asked] = -math.inf
        return self._chosen(int(hoped.argmax()))

    def _chosen(self, place: int) -> int:
        self._add(place)
        return int(self._rows[place])

    def _add(self, place: int) -> None:
        across = _DEVIATION**2 * self._covariance.covariance(self._codes, self._codes[place])
        across = across.astype(np.float64) + self._deviations[:, place] @ self._deviations
        self._asked.append(place)
        self._across = np.concatenate([self._across, across[None, :]])

    def _difference(self) -> tuple[Floats, Floats]:
        """Of each candidate, how much slower than expected it is likely to be, and the deviation of that.

        Of what is under way the place is known, which makes it less interesting, and not the value.
        """
        if not self._asked:
            return np.zeros(len(self._rows)), np.sqrt(self._prior)
        gram = self._across[:, self._asked]
        inverse = np.linalg.inv(gram + _BELIEFS.noise * _DEVIATION**2 * np.eye(len(gram)))
        explained = np.einsum("ij,ik,kj->j", self._across, inverse, self._across)
        deviation = np.sqrt(np.maximum(self._prior - explained, 0.0))
        known = [i for i, place in enumerate(self._asked) if place in self._told]
        times = [self._told[self._asked[i]] for i in known]
        fastest = min((time for time in times if time is not None), default=None)
        if fastest is None:
            return np.zeros(len(self._rows)), deviation
        logs = np.array([math.log(fastest) + _FAILED if time is None else math.log(time) for time in times])
        ratios = logs - self._expected[[self._asked[i] for i in known]]
        gram = gram[np.ix_(known, known)] + _BELIEFS.noise * _DEVIATION**2 * np.eye(len(known))
        weights = np.linalg.solve(gram, np.stack([ratios, np.ones(len(known))], axis=1))
        mean = weights[:, 0].sum() / weights[:, 1].sum()
        return (weights[:, 0] - mean * weights[:, 1]) @ self._across[known], deviation


def _combined(
    estimates: Sequence[Floats],
) -> tuple[Floats, Floats, npt.NDArray[np.int64], list[int]]:
    """The candidates' expected log times, how each estimate deviates from these, their rows, and each one's best.

    Deviations are scaled to `_SEVERAL` on the whole. What one does not know, or has failed, is as slow as a failure
    by it; a configuration of which all say so is no candidate.
    """
    logs = []
    for estimate in estimates:
        usable = np.isfinite(estimate) & (estimate > 0)
        ratios = estimate[usable] / estimate[usable].min()
        log = np.full(len(estimate), max(_FAILED, float(np.log(ratios).max(initial=0.0))))
        log[usable] = np.log(ratios)
        logs.append(log)
    stacked = np.array(logs)
    shares = 1 / np.arange(1, len(logs) + 1)
    expected = shares @ stacked / shares.sum()
    known = np.flatnonzero(np.any([np.isfinite(e) & (e > 0) for e in estimates], axis=0))
    rows = known[np.argsort(expected[known], kind="stable")][:_MAX_CANDIDATES]
    deviations = stacked[:, rows] - expected[rows]
    spread = float(deviations.std())
    deviations *= _SEVERAL / spread if spread > 0 else 0.0
    best = stacked[:, rows].argmin(axis=1).tolist()
    return expected[rows], deviations, rows, list(dict.fromkeys(best))
