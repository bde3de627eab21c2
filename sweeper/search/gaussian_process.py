"""A Gaussian process on level indices whose posterior is kept for a fixed set of candidate points.

With the candidates known beforehand the posterior grows by one observation at the cost of one
matrix-vector product, because the whitened covariances V = L⁻¹ K(observed, candidates) only gain a row
(Rasmussen and Williams, Gaussian Processes for Machine Learning, algorithm 2.1). V depends on where was
observed, not on what: values may be told later, and of an observation without one the model believes
what it predicts.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Covariance", "Metric", "Posterior", "fitted", "matern"]

Floats = npt.NDArray[np.floating]
Indices = npt.NDArray[np.integer]

_NOISE = 1e-2  # of the variance of the targets: run times vary by a few percent
_FACTORS = (0.5, 0.7, 1.4, 2.0)
_SWEEPS = 2
_TYPICAL_SCALE, _SCALE_DECADES = 0.6, 0.8
_LEAST_SCALE, _LARGEST_SCALE = 0.05, 8.0


class Covariance(Protocol):
    """How alike the values at two points are: 1 for a point and itself. `noise` is the variance of a reading."""

    @property
    def noise(self) -> float: ...

    def covariance(self, points: Indices, point: Indices) -> Floats:
        """Of each of `points` with `point`."""
        ...


class Metric:
    """Distances between points given by level indices.

    A parameter with numbers for levels runs from 0 to 1 in equal steps; one with names is 1 where they
    differ. `scales` are the lengths over which the time changes, a parameter each.
    """

    noise = _NOISE

    def __init__(self, counts: list[int], ordered: list[bool], scales: Floats | None = None) -> None:
        self._counts = counts
        self._ordered = ordered
        self.scales = np.full(len(counts), _TYPICAL_SCALE) if scales is None else scales

    def scaled(self, scales: Floats) -> Metric:
        """The same metric with other scales."""
        return Metric(self._counts, self._ordered, scales)

    def parts(self, points: Indices, point: Indices) -> list[Floats]:
        """Squared unscaled distance of each of `points` from `point`, a parameter each."""
        return [self._table(j, int(point[j])).take(points[:, j]) for j in range(len(self._counts))]

    def covariance(self, points: Indices, point: Indices) -> Floats:
        """Matérn 5/2 of the scaled distance of each of `points` from `point`."""
        squared = np.zeros(len(points), dtype=np.float32)
        for j, scale in enumerate(self.scales):
            squared += (self._table(j, int(point[j])) / scale**2).astype(np.float32).take(points[:, j])
        return matern(squared)

    def _table(self, parameter: int, level: int) -> Floats:
        count = self._counts[parameter]
        difference = np.arange(count) - level
        if not self._ordered[parameter]:
            return np.asarray(difference != 0, dtype=np.float64)
        squared: Floats = (difference / max(1, count - 1)) ** 2
        return squared


def matern(squared: Floats) -> Floats:
    """(1 + √5 r + 5 r²/3) e^(−√5 r) for squared distances r² (Rasmussen and Williams, 4.17)."""
    root = np.sqrt(5 * squared)
    return (1 + root + root * root / 3) * np.exp(-root)


class Posterior:
    """What is known of `candidates` (rows of level indices) after observations at other points."""

    def __init__(self, metric: Covariance, candidates: Indices) -> None:
        self._metric = metric
        self._candidates = candidates
        self._points = np.empty((0, candidates.shape[1]), dtype=candidates.dtype)
        self._factor: Floats = np.empty((0, 0))
        self._inverse: Floats = np.empty((0, 0))
        self._whitened = np.empty((0, len(candidates)), dtype=np.float32)
        self.variance: Floats = np.ones(len(candidates))

    def observe(self, point: Indices) -> None:
        """Add an observation at `point`, whatever its value will be."""
        known = len(self._points)
        prior = self._metric.covariance(self._candidates, point)
        own = self._inverse @ self._metric.covariance(self._points, point)
        last = math.sqrt(max(1 + self._metric.noise - float(own @ own), 1e-8))
        row = (prior - own.astype(np.float32) @ self._whitened[:known]) / last
        self._factor = _bordered(self._factor, own, last)
        self._inverse = _bordered(self._inverse, -(own @ self._inverse) / last, 1 / last)
        if known == len(self._whitened):
            grown = np.empty((max(32, 2 * known), len(self._candidates)), dtype=np.float32)
            grown[:known] = self._whitened
            self._whitened = grown
        self._whitened[known] = row
        self._points = np.concatenate([self._points, point[None, :]])
        self.variance = np.maximum(self.variance - row**2, 1e-9)

    def observe_all(self, points: Indices) -> None:
        """Add observations at `points` to a posterior that has none: the same as one by one, and quicker."""
        if len(self._points):
            raise ValueError("some points were observed before")
        covariances = np.array([self._metric.covariance(points, point) for point in points], dtype=np.float64)
        covariances = covariances.reshape(len(points), len(points)) + self._metric.noise * np.eye(len(points))
        self._factor = np.linalg.cholesky(covariances)
        self._inverse = np.linalg.inv(self._factor)
        cross = np.empty((len(points), len(self._candidates)), dtype=np.float32)
        for i, point in enumerate(points):
            cross[i] = self._metric.covariance(self._candidates, point)
        self._whitened = self._inverse.astype(np.float32) @ cross
        self._points = points
        explained = np.einsum("ij,ij->j", self._whitened, self._whitened)
        self.variance = np.maximum(self.variance - explained, 1e-9)

    def restrict(self, kept: npt.NDArray[np.int64]) -> None:
        """Forget all candidates but those at `kept`."""
        self._candidates = self._candidates[kept]
        self._whitened = np.ascontiguousarray(self._whitened[:, kept])
        self.variance = self.variance[kept]

    def mean(self, targets: Floats) -> tuple[Floats, float]:
        """Posterior mean at the candidates and the variance of the process, from a target an observation.

        A target of NaN is not known yet: it is taken to be what the earlier observations predict.
        """
        known = ~np.isnan(targets)
        if known.all():
            residuals = self._inverse @ targets
        else:
            residuals = np.zeros(len(targets))
            for i in np.flatnonzero(known).tolist():
                residuals[i] = (targets[i] - self._factor[i, :i] @ residuals[:i]) / self._factor[i, i]
        mean = residuals.astype(np.float32) @ self._whitened[: len(targets)]
        return mean.astype(np.float64), float(np.mean(residuals[known] ** 2))


def fitted(metric: Metric, points: Indices, targets: Floats) -> Metric:
    """`metric` with the scales under which `targets` at `points` are likeliest, found one at a time.

    The likelihood has the process variance profiled out; a log-normal prior keeps a scale that the data
    say nothing of near its usual size.
    """
    parts = np.array([metric.parts(points, point) for point in points]).transpose(1, 0, 2)
    scales = metric.scales.copy()
    best = _plausibility(scales, parts, targets)
    for _ in range(_SWEEPS):
        for j in range(len(scales)):
            for factor in _FACTORS:
                tried = scales.copy()
                tried[j] = np.clip(tried[j] * factor, _LEAST_SCALE, _LARGEST_SCALE)
                found = _plausibility(tried, parts, targets)
                if found > best:
                    best, scales = found, tried
    return metric.scaled(scales)


def _plausibility(scales: Floats, parts: Floats, targets: Floats) -> float:
    """Log of prior times profile likelihood, up to a constant."""
    size = len(targets)
    # The factor of [[K, y], [yᵀ, c]] has L⁻¹ y for its last row: one factorisation gives both terms.
    bordered = np.empty((size + 1, size + 1))
    bordered[:size, :size] = matern(np.tensordot(scales**-2.0, parts, axes=1))
    bordered[np.diag_indices(size)] += _NOISE
    bordered[size, :size] = bordered[:size, size] = targets
    bordered[size, size] = 1 + targets @ targets / _NOISE
    factor = np.linalg.cholesky(bordered)
    scatter, half_determinant = np.mean(factor[size, :size] ** 2), np.log(np.diag(factor)[:size]).sum()
    likelihood = -0.5 * size * np.log(scatter + 1e-12) - half_determinant
    prior = -0.5 * ((np.log(scales / _TYPICAL_SCALE) / _SCALE_DECADES) ** 2).sum()
    return float(likelihood + prior)


def _bordered(lower: Floats, row: Floats, last: float) -> Floats:
    """The lower triangular matrix with one more row, which ends in `last` on the diagonal."""
    size = len(lower)
    grown = np.zeros((size + 1, size + 1))
    grown[:size, :size], grown[size, :size], grown[size, size] = lower, row, last
    return grown
