"""Bayesian search over the enumerated space: a Gaussian process of log time, asked where it may be least.

Every feasible point is a candidate, so nothing has to be moved to a feasible one, and the model's cost is
a few milliseconds a configuration. Points that are being measured count as what the model predicts for
them; failed ones as no better than the slowest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.search.base import Number, SpaceStrategy, checked_options
from sweeper.search.gaussian_process import Metric, Posterior, fitted
from sweeper.search.one_thread import on_one_thread
from sweeper.search.random import Shuffle
from sweeper.space import Space

__all__ = ["Bayes"]

_OPTIMISM = 1.5  # standard deviations below the mean that a point is hoped to be
_REFIT_GROWTH = 1.5
_MAX_FITTED = 100
_MAX_OBSERVED = 800
_MAX_CANDIDATES = 20_000
_CENTRES = 30


class Bayes(SpaceStrategy):
    """The search described above; its first `startup` configurations are random."""

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
        objectives: int = 1,
    ) -> None:
        super().__init__(
            space, seed, checked_options("bayes", options or {}, {"startup": Number(12)}), objectives
        )
        self._rng = np.random.default_rng([seed, 1])
        self._shuffle = Shuffle(len(space), np.random.default_rng(seed))
        varied = [levels for levels in space.levels if len(levels) > 1]
        self._varied = [j for j, levels in enumerate(space.levels) if len(levels) > 1]
        ordered = [all(isinstance(v, int | float) for v in levels) for levels in varied]
        self._metric = Metric([len(levels) for levels in varied], ordered)
        self._values: dict[int, float | None] = {}
        self._slowest: float | None = None
        self._positive = True
        self._refit_at = 0
        self._observed: list[int] = []
        self._candidates: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._posterior: Posterior | None = None

    def _observe(self, row: int, values: tuple[float, ...] | None, *, asked: bool) -> None:
        value = None if values is None else values[0]
        self._values[row] = value
        if value is not None:
            self._slowest = value if self._slowest is None else max(value, self._slowest)
            self._positive &= value > 0
        if not asked and self._posterior is not None:
            self._add(row)

    @on_one_thread
    def _propose(self) -> int:
        row = self._shuffle.draw_unless(self._taken) if self._is_starting() else self._promising()
        if self._posterior is not None:
            self._add(row)
        return row

    def _is_starting(self) -> bool:
        return self._slowest is None or len(self._values) < self._options["startup"]

    def _promising(self) -> int:
        """The unseen candidate with the least optimistic time, the first of equals."""
        if self._posterior is None or len(self._values) >= self._refit_at:
            self._posterior = self._refitted()
        targets = _standardised([self._target(row) for row in self._observed])
        mean, variance = self._posterior.mean(targets)
        hoped = mean - _OPTIMISM * np.sqrt(self._posterior.variance * max(variance, 1e-6))
        # Rounded, so that the last bits of a library's sums do not choose between equal points.
        hoped = np.where(self._taken[self._candidates], math.inf, hoped.round(4))
        chosen = int(hoped.argmin())
        if math.isinf(hoped[chosen]):
            return self._shuffle.draw_unless(self._taken)
        return int(self._candidates[chosen])

    def _refitted(self) -> Posterior:
        """A model of what was told so far, with its scales fitted and its candidates chosen anew."""
        told = sorted(self._values, key=lambda row: (self._target(row), row))
        judged = _thinned(told, _MAX_FITTED)
        targets = _standardised([self._target(row) for row in judged])
        self._metric = fitted(self._metric, self._points(judged), targets)
        self._candidates = self._chosen_candidates(told)
        posterior = Posterior(self._metric, self._points(self._candidates))
        self._observed = [*_thinned(told, _MAX_OBSERVED), *sorted(self._pending)]
        for point in self._points(self._observed):
            posterior.observe(point)
        self._refit_at = math.ceil(_REFIT_GROWTH * len(self._values))
        return posterior

    def _chosen_candidates(self, told: list[int]) -> npt.NDArray[np.int64]:
        """Every point, or of a large space the surroundings of the best points and a random part."""
        if len(self._space) <= _MAX_CANDIDATES:
            return np.arange(len(self._space))
        near: set[int] = set()
        for row in told[:_CENTRES]:
            near.update(self._space.neighbours(row, "hamming").tolist())
        drawn = self._rng.integers(0, len(self._space), _MAX_CANDIDATES)
        return np.unique(np.concatenate([np.fromiter(near, np.int64, len(near)), drawn]))

    def _points(self, rows: Any) -> npt.NDArray[np.integer]:
        """Level indices at `rows` of the parameters that have more than one level."""
        points: npt.NDArray[np.integer] = self._space.indices[rows][:, self._varied]
        return points

    def _add(self, row: int) -> None:
        if self._posterior is not None:
            self._posterior.observe(self._points([row])[0])
            self._observed.append(row)

    def _target(self, row: int) -> float:
        """Log time, the slowest known one for a failed configuration, NaN for one under way."""
        value = self._values.get(row, math.nan)
        if value is None:
            value = self._slowest or 0.0
        return math.log(value) if self._positive else value


def _thinned(told: list[int], most: int) -> list[int]:
    """All of `told` (best first), or the better part of them and an even choice of the rest."""
    if len(told) <= most:
        return told
    half = most // 2
    rest = np.linspace(half, len(told) - 1, most - half).round().astype(int)
    return told[:half] + [told[i] for i in rest.tolist()]


def _standardised(targets: list[float]) -> npt.NDArray[np.float64]:
    """`targets` with mean 0 and deviation 1 over those that are known."""
    values = np.asarray(targets)
    deviation = float(np.nanstd(values))
    centred: npt.NDArray[np.float64] = (values - np.nanmean(values)) / (deviation or 1.0)
    return centred
