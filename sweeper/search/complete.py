"""Times of a whole space from those of some of its points."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sweeper.search.gaussian_process import Posterior
from sweeper.search.relevance import Beliefs, Groups, Relevance, fitted_relevance
from sweeper.space import Space

__all__ = ["completed"]

Floats = npt.NDArray[np.float64]

_BELIEFS = Beliefs(length=1.5, logit=0.0)
_PASSES = 3
_MAX_KNOWN = 200
_MAX_ROWS = 20_000


def completed(space: Space, times: Floats) -> Floats:
    """`times` by row with what is NaN filled in by a Gaussian process of the relative speed.

    Known times stay. No guess is faster than the fastest known: a guess is a reason to try a point, not more than
    a measurement. Of a very large space the points that are not looked at stay NaN.
    """
    known = np.flatnonzero(np.isfinite(times) & (times > 0))
    unknown = np.flatnonzero(np.isnan(times))
    varied = [j for j, levels in enumerate(space.levels) if len(levels) > 1]
    if len(known) < 2 or not len(unknown) or not varied:
        return times
    if len(unknown) > _MAX_ROWS:
        unknown = unknown[np.linspace(0, len(unknown) - 1, _MAX_ROWS).round().astype(int)]
    fastest = float(times[known].min())
    order = known[np.argsort(times[known], kind="stable")]
    if len(order) > _MAX_KNOWN:
        half = _MAX_KNOWN // 2
        rest = np.linspace(half, len(order) - 1, _MAX_KNOWN - half).round().astype(int)
        order = np.concatenate([order[:half], order[rest]])
    speeds = fastest / times[order]
    centre, deviation = float(speeds.mean()), float(speeds.std()) or 1.0
    targets = (speeds - centre) / deviation
    groups = Groups(
        [len(space.levels[j]) for j in varied],
        [all(isinstance(value, int | float) for value in space.levels[j]) for j in varied],
    )
    points = space.indices[order][:, varied]
    covariance = Relevance.believed(groups, _BELIEFS)
    rng = np.random.default_rng(0)
    for _ in range(_PASSES):
        covariance = fitted_relevance(covariance, points, targets, _BELIEFS, rng)
    posterior = Posterior(covariance, groups.codes(space.indices[unknown][:, varied]))
    posterior.observe_all(groups.codes(points))
    mean, _ = posterior.mean(targets)
    guesses = np.clip(centre + deviation * mean, 0.01, 0.99)
    result = times.copy()
    result[unknown] = fastest / guesses
    return result
