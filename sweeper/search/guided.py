"""Search guided by what is known: estimates from elsewhere first, then two models of the enumerated space in turns.

Every feasible point is a candidate. The first configurations are the best by each of the given estimates (the
static model's, or times of a neighbouring shape, precision or GPU), and points far from each other. From then on a
Gaussian process of the relative speed, best time / time, chooses the point that may be fastest. Of the speed,
not of the time or its logarithm: slow points differ by large factors that teach nothing of fast ones, and a failed
one simply has speed 0. Two of them take turns, since a search that believes one model stays in its traps: one that
believes in rough, strongly interacting parameters, and one in smooth, nearly additive ones. Estimates are further
parameters of both, whose weight is learned like any other's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.search.base import Number, SpaceStrategy, checked_options
from sweeper.search.gain import expected_improvement
from sweeper.search.gaussian_process import Posterior
from sweeper.search.one_thread import on_one_thread
from sweeper.search.random import Shuffle
from sweeper.search.relevance import Beliefs, Groups, Relevance, fitted_relevance
from sweeper.search.spread import Spread
from sweeper.space import Space

__all__ = ["Guided", "estimate_levels"]

Estimate = npt.NDArray[np.float64]
"""Times by row of a space in any unit; NaN where nothing is known."""

_BELIEFS = (Beliefs(length=0.6, logit=1.0), Beliefs(length=1.5, logit=0.0))
_OPTIMISM = 2.0
"""Standard deviations above the expected speed that a point is hoped to have."""
_REFIT_GROWTH = 1.15
_MAX_FITTED = 100
_MAX_OBSERVED = 400
_MAX_CANDIDATES = 20_000
_MAX_KEPT = 4096
_ALL_KEPT = 200
"""Up to so many observations every candidate is kept in sight."""
_DRAWN = 8_000
_CENTRES = 30
_ESTIMATE_LEVELS = 16
_LIKELY = 64
"""By each estimate, before there is a model."""


class Guided(SpaceStrategy):
    """The search described above.

    Its first configurations are `startup` that are far from each other; with `estimates` the best by each of them,
    in turns and half as many each, and distant ones for the rest: an estimate may be wrong.
    """

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
        objectives: int = 1,
        *,
        estimates: Sequence[Estimate] = (),
    ) -> None:
        super().__init__(
            space, seed, checked_options("guided", options or {}, {"startup": Number(8)}), objectives
        )
        for estimate in estimates:
            if estimate.shape != (len(space),):
                raise ValueError(f"estimates of {estimate.shape} rows for a space of {len(space)}")
        self._rng = np.random.default_rng([seed, 2])
        self._shuffle = Shuffle(len(space), np.random.default_rng(seed))
        self._spread: Spread | None = Spread(space, np.random.default_rng([seed, 3]))
        self._first = _favourites(estimates, math.ceil(self._options["startup"] / 2))
        self._favourites = _favourites(estimates, _LIKELY)
        self._views = _views(space, estimates)
        self._groups = Groups([int(v.max()) + 1 for v, _ in self._views], [o for _, o in self._views])
        self._covariances = [Relevance.believed(self._groups, beliefs) for beliefs in _BELIEFS]
        self._posteriors: list[Posterior] = []
        self._candidates: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._observed: list[int] = []
        self._values: dict[int, float | None] = {}
        self._least: float | None = None
        self._positive = True
        self._refit_at = 0
        self._turn = 0

    @on_one_thread
    def _observe(self, row: int, values: tuple[float, ...] | None, *, asked: bool) -> None:
        value = None if values is None else values[0]
        self._values[row] = value
        if value is not None:
            self._least = value if self._least is None else min(value, self._least)
            self._positive &= value > 0
        if not asked and self._posteriors:
            self._add(row)

    @on_one_thread
    def _propose(self) -> int:
        row = self._begin()
        if row is None:
            row = self._promising()
        if self._posteriors:
            self._add(row)
        return row

    def _begin(self) -> int | None:
        """A row that needs no model, None once there is something to model."""
        while self._first:
            row = self._first.pop(0)
            if not self._taken[row]:
                return row
        known = sum(value is not None for value in self._values.values())
        if (
            known < min(2, self._options["startup"])
            or len(self._values) + len(self._pending) < self._options["startup"]
        ):
            distant = None if self._spread is None else self._spread.draw_unless(self._taken)
            return self._shuffle.draw_unless(self._taken) if distant is None else distant
        self._spread = None
        return None

    def _take(self, row: int) -> None:
        super()._take(row)
        if self._spread is not None:
            self._spread.add(row)

    def _promising(self) -> int:
        """The unseen candidate that may be fastest, the first of equals."""
        if not self._posteriors or len(self._values) >= self._refit_at:
            self._refit()
        turn = self._turn % len(self._posteriors)
        self._turn += 1
        hoped = self._hoped(self._posteriors[turn])
        # Rounded, so that the last bits of a library's sums do not choose between equal points.
        hoped = np.where(self._taken[self._candidates], -math.inf, hoped.round(5))
        chosen = int(hoped.argmax())
        if math.isinf(hoped[chosen]):
            return self._shuffle.draw_unless(self._taken)
        return int(self._candidates[chosen])

    @on_one_thread
    def likely(self, count: int) -> list[int]:
        """What either model hopes most of, in turns; before there is one, the best by the estimates."""
        if not self._posteriors:
            return [row for row in self._favourites if not self._taken[row]][:count]
        open_ = np.flatnonzero(~self._taken[self._candidates])
        count = min(count, len(open_))
        orders = []
        for posterior in self._posteriors if count > 0 else ():
            hoped = self._hoped(posterior)[open_]
            best = np.argpartition(-hoped, count - 1)[:count]
            orders.append(self._candidates[open_[best[np.argsort(-hoped[best], kind="stable")]]].tolist())
        return list(dict.fromkeys(row for rank in zip(*orders, strict=True) for row in rank))[:count]

    @on_one_thread
    def expected_gain(self) -> float | None:
        """What the speed of the most promising unseen point is expected to gain on the best, relative to it.

        By whichever model hopes for more; None before there is one, 0 where nothing is left to be asked.
        """
        if not self._posteriors:
            return None
        targets = self._targets(self._observed)
        told = [self._speed(row) for row in self._observed if row in self._values]
        best, scale = float(np.nanmax(targets)), float(np.std(told)) or 1.0
        open_ = ~self._taken[self._candidates]
        gains = [0.0]
        for posterior in self._posteriors if open_.any() else ():
            mean, variance = posterior.mean(targets)
            deviation = np.sqrt(posterior.variance * max(variance, 1e-6))
            gains.append(scale * expected_improvement(mean[open_] - best, deviation[open_]))
        return max(gains)

    def _hoped(self, posterior: Posterior) -> npt.NDArray[np.float64]:
        """The speed that each candidate may have, in deviations from the mean."""
        mean, variance = posterior.mean(self._targets(self._observed))
        return np.asarray(mean + _OPTIMISM * np.sqrt(posterior.variance * max(variance, 1e-6)))

    def _refit(self) -> None:
        """Learn both models from what was told so far, and choose their candidates anew."""
        told = sorted(self._values, key=lambda row: (-self._speed(row), row))
        judged = _thinned(told, _MAX_FITTED)
        points, targets = self._points(judged), self._targets(judged)
        self._covariances = [
            fitted_relevance(covariance, points, targets, beliefs, self._rng)
            for covariance, beliefs in zip(self._covariances, _BELIEFS, strict=True)
        ]
        self._observed = [*_thinned(told, _MAX_OBSERVED), *sorted(self._pending)]
        self._candidates = self._chosen(told)
        self._condition()
        if len(self._candidates) > _MAX_KEPT and len(self._values) > _ALL_KEPT:
            # Until the next time only what either model thinks well of can come to be chosen.
            hoped = [self._hoped(posterior) for posterior in self._posteriors]
            best = [np.argpartition(-each, _MAX_KEPT // 2)[: _MAX_KEPT // 2] for each in hoped]
            kept = np.unique(np.concatenate(best))
            self._candidates = self._candidates[kept]
            for posterior in self._posteriors:
                posterior.restrict(kept)
        self._refit_at = math.ceil(_REFIT_GROWTH * max(1, len(self._values)))

    def _condition(self) -> None:
        """Both posteriors over the candidates after what was observed."""
        codes = self._groups.codes(self._points(self._candidates))
        observed = self._groups.codes(self._points(self._observed))
        self._posteriors = [Posterior(covariance, codes) for covariance in self._covariances]
        for posterior in self._posteriors:
            posterior.observe_all(observed)

    def _chosen(self, told: list[int]) -> npt.NDArray[np.int64]:
        """Every unseen point, or of a large space the surroundings of the best points and a random part."""
        if len(self._space) <= _MAX_CANDIDATES:
            return np.flatnonzero(~self._taken)
        near: set[int] = set()
        for row in told[:_CENTRES]:
            near.update(self._space.neighbours(row, "hamming").tolist())
        drawn = self._rng.integers(0, len(self._space), _DRAWN)
        rows = np.unique(np.concatenate([np.fromiter(near, np.int64, len(near)), drawn]))
        return np.asarray(rows[~self._taken[rows]])

    def _points(self, rows: Any) -> npt.NDArray[np.integer[Any]]:
        """Level indices at `rows` of the parameters that vary and of the estimates."""
        rows = np.asarray(rows, dtype=np.int64)
        return np.stack([view[rows] for view, _ in self._views], axis=1)

    def _add(self, row: int) -> None:
        (code,) = self._groups.codes(self._points([row]))
        for posterior in self._posteriors:
            posterior.observe(code)
        self._observed.append(row)

    def _targets(self, rows: Sequence[int]) -> npt.NDArray[np.float64]:
        """Speeds with mean 0 and deviation 1; NaN for what is under way."""
        speeds = np.array([self._speed(row) if row in self._values else math.nan for row in rows])
        deviation = float(np.nanstd(speeds))
        return np.asarray((speeds - np.nanmean(speeds)) / (deviation or 1.0))

    def _speed(self, row: int) -> float:
        """Of the fastest known: 1 for it, towards 0 for slower ones, 0 for a failed one.

        Where a value is not positive, minus the value: there are no ratios, and the worst stands for a failure.
        """
        value = self._values[row]
        if self._positive:
            return 0.0 if value is None else (self._least or 0.0) / value
        if value is None:
            return -max(v for v in self._values.values() if v is not None)
        return -value


def estimate_levels(estimate: Estimate) -> npt.NDArray[np.int64]:
    """Levels of a parameter that stands for an estimate: the relative speed in equal steps, 0 where unknown.

    Speeds of the fastest come to the last level, so that a model sees what is close to the best.
    """
    known = np.isfinite(estimate) & (estimate > 0)
    levels = np.zeros(len(estimate), dtype=np.int64)
    if known.any():
        speed = estimate[known].min() / estimate[known]
        levels[known] = np.floor(speed * (_ESTIMATE_LEVELS - 1)).astype(np.int64)
    return levels


def _favourites(estimates: Sequence[Estimate], count: int) -> list[int]:
    """The best rows by each estimate, in turns, each once."""
    orders = []
    for estimate in estimates:
        known = np.flatnonzero(np.isfinite(estimate))
        orders.append(known[np.argsort(estimate[known], kind="stable")][:count].tolist())
    turns = [order[place] for place in range(count) for order in orders if place < len(order)]
    return list(dict.fromkeys(turns))[: count * max(1, len(orders))]


def _views(space: Space, estimates: Sequence[Estimate]) -> list[tuple[npt.NDArray[np.integer[Any]], bool]]:
    """Level indices by row of each parameter that varies and of each estimate, and whether they are ordered."""
    views: list[tuple[npt.NDArray[np.integer[Any]], bool]] = [
        (space.indices[:, j], all(isinstance(v, int | float) for v in levels))
        for j, levels in enumerate(space.levels)
        if len(levels) > 1
    ]
    views += [(estimate_levels(estimate), True) for estimate in estimates]
    return views or [(np.zeros(len(space), dtype=np.int64), True)]


def _thinned(told: list[int], most: int) -> list[int]:
    """All of `told` (best first), or the better part of them and an even choice of the rest."""
    if len(told) <= most:
        return told
    half = most // 2
    rest = np.linspace(half, len(told) - 1, most - half).round().astype(int)
    return told[:half] + [told[i] for i in rest.tolist()]
