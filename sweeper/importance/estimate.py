"""Shares of the variance of log time: exact where the whole space was recorded, else by a forest.

Time acts by ratios, so its logarithm is taken. A failed configuration counts as slow as the slowest valid one: a
search learns of it that it is no good, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sweeper.importance.configurations import Floats, Indices
from sweeper.importance.decomposition import alone_effects, pair_effects, redrawn_total, total_effects
from sweeper.importance.forest import grown
from sweeper.importance.model import Share
from sweeper.importance.ped_anova import top_shares
from sweeper.importance.region import Region

__all__ = ["EXACT", "FOREST", "Shares", "by_forest", "exact", "logarithms", "resampled_top"]

EXACT, FOREST = "functional ANOVA", "fANOVA"

_RESAMPLES, _TREES_EACH, _ROWS, _JUDGED = 20, 3, 1500, 2000
_TOP_RESAMPLES = 100
_LOW, _HIGH = 5, 95


@dataclass(frozen=True)
class Shares:
    """What an evaluator says of each parameter and pair, by place; `fit` and `predict` are the model's, if any.

    `predict` takes points (points, parameters) and gives their log time, (points,).
    """

    alone: Sequence[Share]
    total: Sequence[Share]
    pairs: dict[tuple[int, int], Share]
    fit: float | None = None
    predict: Callable[[Indices], Floats] | None = None


def logarithms(values: Floats) -> Floats:
    """The logarithm of each value, a failed one's (NaN) that of the largest; all NaN where all failed."""
    logs = np.log(values)
    return np.where(np.isnan(logs), np.nanmax(logs, initial=-np.inf), logs) if len(logs) else logs


def exact(codes: Indices, counts: Sequence[int], logs: Floats) -> Shares:
    """Of a table in which every feasible configuration stands."""
    column = logs[:, None]
    return Shares(
        alone=[Share(float(v)) for v in alone_effects(codes, counts, column, sampled=False)[:, 0]],
        total=[Share(float(v)) for v in total_effects(codes, logs)],
        pairs={
            at: Share(float(found[0]))
            for at, found in pair_effects(codes, counts, column, sampled=False).items()
        },
    )


def by_forest(
    codes: Indices,
    counts: Sequence[int],
    ordered: Sequence[bool],
    logs: Floats,
    region: Region,
    rng: np.random.Generator,
) -> Shares:
    """Of what a regression forest predicts on `region` (Hutter, Hoos and Leyton-Brown, ICML 2014).

    Trees grow on resampled trials, three for each of 20 resamples (at most 1500 trials each); the interval is that
    of the resamples' own shares about their mean, the 5th to the 95th percentile.
    """
    size = min(len(codes), _ROWS)
    resamples = rng.integers(len(codes), size=(_RESAMPLES, size))
    forest = grown(codes, counts, ordered, logs, np.repeat(resamples, _TREES_EACH, axis=0), rng)

    def columns(points: Indices) -> Floats:
        """The prediction of the whole forest, then those of each resample."""
        trees = forest.predict(points)
        each = trees.reshape(len(points), _RESAMPLES, _TREES_EACH).mean(axis=2)
        return np.column_stack([trees.mean(axis=1), each])

    predicted = columns(region.points)
    total = [_share(redrawn_total(predicted, columns(again))) for again in region.redrawn]
    return Shares(
        alone=[_share(found) for found in alone_effects(region.points, counts, predicted, sampled=True)],
        total=total,
        pairs={
            at: _share(found)
            for at, found in pair_effects(region.points, counts, predicted, sampled=True).items()
        },
        fit=_fit(codes, logs, resamples, columns, rng),
        predict=lambda points: columns(points)[:, 0],
    )


def resampled_top(
    codes: Indices, counts: Sequence[int], values: Floats, rng: np.random.Generator, *, sampled: bool
) -> list[Share] | None:
    """PED-ANOVA's shares, where the trials are a sample with the interval over 100 resamples of them."""
    found = top_shares(codes, counts, values)
    if found is None:
        return None
    if not sampled:
        return [Share(float(value)) for value in found]
    again = [found]
    for _ in range(_TOP_RESAMPLES):
        rows = rng.integers(len(codes), size=len(codes))
        drawn = top_shares(codes[rows], counts, values[rows])
        if drawn is not None:
            again.append(drawn)
    return [_share(column) for column in np.array(again).T]


def _share(columns: Floats) -> Share:
    """The first of `columns` with the interval that the others make about it."""
    value, again = float(columns[0]), columns[1:]
    if not len(again):
        return Share(value)
    low, high = np.percentile(again - again.mean(), (_LOW, _HIGH))
    return Share(value, float(max(0.0, value + low)), float(min(1.0, value + high)))


def _fit(
    codes: Indices,
    logs: Floats,
    resamples: Indices,
    columns: Callable[[Indices], Floats],
    rng: np.random.Generator,
) -> float | None:
    """R² of predictions by the resamples that a trial is not in."""
    judged = rng.permutation(len(codes))[:_JUDGED]
    unseen = np.ones((len(resamples), len(codes)), dtype=bool)
    np.put_along_axis(unseen, resamples, values=False, axis=1)
    out = unseen[:, judged].T
    some = out.any(axis=1)
    if some.sum() < 2:
        return None
    out, judged = out[some], judged[some]
    predicted = (columns(codes[judged])[:, 1:] * out).sum(axis=1) / out.sum(axis=1)
    variance = float(((logs[judged] - logs[judged].mean()) ** 2).sum())
    return 1 - float(((logs[judged] - predicted) ** 2).sum()) / variance if variance > 0 else None
