"""Functional ANOVA of values on a finite set of points, whatever the set's form.

Every point weighs the same, so that constraints are part of the distribution: nothing is averaged over points that
cannot be. With x a point's levels and y its value:

    alone  of j      Var(E[y | x_j]) / Var(y)                          Sobol's first order
    pair   of j, k   (R² of a value a cell − R² of a_j + b_k) / 1      what the two add to the sum of their own
    total  of j      E[Var(y | all but x_j)] / Var(y)                  Sobol's total order

On a full product these are Sobol's indices (I. M. Sobol', Math. Comput. Simul. 55, 2001). On other sets parameters
depend on each other: `alone` includes what a parameter tells of others, `pair` is the part orthogonal to both (the
generalised ANOVA of Hooker, J. Comput. Graph. Stat. 16, 2007, for two variables) and is never negative, and the
shares need not add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from sweeper.importance.configurations import Floats, Indices

__all__ = ["alone_effects", "pair_effects", "redrawn_total", "total_effects"]


def alone_effects(codes: Indices, counts: Sequence[int], values: Floats, *, sampled: bool) -> Floats:
    """`alone` (parameters, columns) of `values` (points, columns) at `codes` (points, parameters).

    `sampled`: the points are a random sample, and what their number alone makes levels differ by is taken off
    (the ε² of Kelley, Proc. Natl. Acad. Sci. 21, 1935); else they are all there is.
    """
    share = _Share(values, sampled)
    found = []
    for column, count in zip(codes.T, counts, strict=True):
        held, sums = _per_cell(column, count, share.centred)
        found.append(share.of(_between(held, sums), int((held > 0).sum())))
    return np.array(found).reshape(len(counts), values.shape[1])


def pair_effects(
    codes: Indices, counts: Sequence[int], values: Floats, *, sampled: bool
) -> dict[tuple[int, int], Floats]:
    """`pair` (columns,) of each two parameters by their places; arguments as those of `alone_effects`."""
    share = _Share(values, sampled)
    found = {}
    for j, k in combinations(range(len(counts)), 2):
        cell = codes[:, j] * counts[k] + codes[:, k]
        held, sums = _per_cell(cell, counts[j] * counts[k], share.centred)
        additive, free = _additive(held.reshape(counts[j], counts[k]), sums.reshape(counts[j], counts[k], -1))
        found[j, k] = share.of(_between(held, sums), int((held > 0).sum()), additive, free)
    return found


def _per_cell(cell: Indices, cells: int, values: Floats) -> tuple[Floats, Floats]:
    """How many points have each of `cells` numbers, (cells,), and the sums of their values, (cells, columns)."""
    columns = values.shape[1]
    held = np.bincount(cell, minlength=cells).astype(np.float64)
    place = (cell[:, None] * columns + np.arange(columns)).ravel()
    sums = np.asarray(np.bincount(place, values.ravel(), minlength=cells * columns), dtype=np.float64)
    return held, sums.reshape(cells, columns)


class _Share:
    """Shares of the variance of each column of `values` (points, columns)."""

    def __init__(self, values: Floats, sampled: bool) -> None:
        self.centred = values - values.mean(axis=0)
        self._whole = np.maximum((self.centred**2).sum(axis=0), np.finfo(float).tiny)
        self._sampled = sampled

    def of(
        self, explained: Floats, means: int, beyond: Floats | float = 0.0, beyond_means: int = 1
    ) -> Floats:
        """What `means` fitted values explain (a sum of squares) beyond what `beyond_means` do."""
        found = explained - beyond
        if self._sampled:
            left = np.maximum(self._whole - explained, 0) / max(1, len(self.centred) - means)
            found = found - (means - beyond_means) * left
        shares: Floats = np.clip(found / self._whole, 0.0, 1.0)
        return shares


def total_effects(codes: Indices, values: Floats) -> Floats:
    """`total` of each parameter over points that are all there is; `values` has shape (points,)."""
    whole = max(float(((values - values.mean()) ** 2).sum()), np.finfo(float).tiny)
    # A random number a level, summed over the others: equal for points that differ in one parameter only.
    rng = np.random.default_rng(0)
    words = [rng.integers(-(2**63), 2**63, 1 + int(column.max(initial=0))) for column in codes.T]
    hashed = np.array([word[column] for word, column in zip(words, codes.T, strict=True)])
    others = hashed.sum(axis=0) - hashed
    found = []
    for key in others:
        _, group = np.unique(key, return_inverse=True)
        held = np.bincount(group)
        means = np.bincount(group, values) / held
        found.append(((values - means[group]) ** 2).sum() / whole)
    return np.array(found)


def redrawn_total(values: Floats, redrawn: Floats) -> Floats:
    """`total` (columns,) of one parameter from `values` (points, columns) and, of the first points, those that they
    have once it is drawn again (Jansen, Comput. Phys. Commun. 117, 1999)."""
    own = values[: len(redrawn)]
    variance = np.maximum(0.5 * (own.var(axis=0) + redrawn.var(axis=0)), np.finfo(float).tiny)
    shares: Floats = np.clip(0.5 * ((own - redrawn) ** 2).mean(axis=0) / variance, 0.0, 1.0)
    return shares


def _between(held: Floats, sums: Floats) -> Floats:
    """Sum of squares that means of `held` points with such `sums` (cells, columns) explain of centred values."""
    shares: Floats = (sums**2 / np.maximum(held, 1)[:, None]).sum(axis=0)
    return shares


def _additive(cells: Floats, sums: Floats) -> tuple[Floats, int]:
    """Sum of squares explained by a row's value plus a column's, and how many values are free in it.

    The normal equations with the rows eliminated; their pseudo-inverse settles what is not determined, such as the
    level between two tables that share no row or column.
    """
    rows, columns = cells.sum(axis=1), cells.sum(axis=0)
    by_row, by_column = sums.sum(axis=1), sums.sum(axis=0)
    scaled = cells / np.maximum(rows, 1)[:, None]
    reduced = np.diag(columns) - cells.T @ scaled
    own = by_column - scaled.T @ by_row
    values, vectors = np.linalg.eigh(reduced)
    determined = values > 1e-9 * max(1.0, float(columns.max(initial=1)))
    turned = vectors.T[determined] @ own
    beyond = (turned**2 / values[determined][:, None]).sum(axis=0)
    return _between(rows, by_row) + beyond, int((rows > 0).sum() + determined.sum())
