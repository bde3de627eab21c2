"""A covariance that learns which parameters matter, alone and together.

    k(x, z) = Π_j ( 1 − s_j + s_j m(|x_j − z_j| / l_j) ),   0 < s_j < 1

Multiplied out this is a sum over all sets of parameters, each with the product of its parameters' correlations m
(Matérn 5/2): main effects, pairs, triples, and so on, weighted by the shares s_j (an ANOVA decomposition: Durrande
et al., Journal of Multivariate Analysis 115, 2013). Small shares give a nearly additive model, which few
observations determine; large ones the usual product. Shares and lengths maximise the likelihood times a prior.

A point is given by group codes: parameters are numbered in groups of a few hundred combinations, so that the
covariance of many points with one is a product of a few table look-ups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sweeper.search.gaussian_process import matern

__all__ = ["Beliefs", "Groups", "Relevance", "fitted_relevance"]

Floats = npt.NDArray[np.floating]
Indices = npt.NDArray[np.integer]

_GROUP_CODES = 512
_LEAST_LENGTH, _LARGEST_LENGTH = 0.1, 10.0
_LARGEST_LOGIT = 5.0
_LEAST_NOISE, _LARGEST_NOISE = 1e-5, 0.3
_LENGTH_STEP, _LOGIT_STEP, _NOISE_STEP = 0.6, 1.0, 0.7
_LENGTH_SPREAD, _LOGIT_SPREAD, _NOISE_SPREAD = 0.8, 1.5, 1.0


@dataclass(frozen=True, slots=True)
class Beliefs:
    """What is thought of a space before anything is known of it, about each parameter alike.

    `length` in units of a parameter's whole range, `logit` of the share, and the variance of the noise.
    """

    length: float
    logit: float
    noise: float = 3e-3


class Groups:
    """Parameters with `counts` levels, those `ordered` by their levels' order, in groups with tables of their own."""

    def __init__(self, counts: Sequence[int], ordered: Sequence[bool]) -> None:
        self.counts = tuple(counts)
        self.differences = [
            _differences(count, by_order) for count, by_order in zip(counts, ordered, strict=True)
        ]
        self.members: list[list[int]] = []
        size = _GROUP_CODES + 1
        for parameter, count in enumerate(counts):
            if size * count > _GROUP_CODES:
                self.members.append([])
                size = 1
            self.members[-1].append(parameter)
            size *= count
        self.levels = [
            np.indices([counts[j] for j in group]).reshape(len(group), -1) for group in self.members
        ]

    def codes(self, indices: Indices) -> npt.NDArray[np.int32]:
        """Group codes (points, groups) of level indices (points, parameters)."""
        codes = np.zeros((len(indices), len(self.members)), dtype=np.int32)
        for place, group in enumerate(self.members):
            for parameter in group:
                codes[:, place] = codes[:, place] * self.counts[parameter] + indices[:, parameter]
        return codes


@dataclass(frozen=True)
class Relevance:
    """The covariance above, over group codes."""

    groups: Groups
    lengths: Floats
    shares: Floats
    noise: float

    @classmethod
    def believed(cls, groups: Groups, beliefs: Beliefs) -> Relevance:
        """The covariance that nothing has been learned for."""
        count = len(groups.counts)
        share = 1 / (1 + math.exp(-beliefs.logit))
        return cls(groups, np.full(count, beliefs.length), np.full(count, share), beliefs.noise)

    def covariance(self, points: Indices, point: Indices) -> Floats:
        """Of each of `points` with `point`, all of them group codes."""
        result = np.ones(len(points), dtype=np.float32)
        for place, (group, levels) in enumerate(zip(self.groups.members, self.groups.levels, strict=True)):
            own = levels[:, int(point[place])]
            table = np.ones(levels.shape[1])
            for row, parameter in enumerate(group):
                table *= self._tables[parameter][own[row]][levels[row]]
            result *= table.astype(np.float32)[points[:, place]]
        return result

    def gram(self, indices: Indices) -> Floats:
        """Covariances of points with each other, given by level indices."""
        result = np.ones((len(indices), len(indices)))
        for parameter in range(len(self.groups.counts)):
            levels = indices[:, parameter]
            result *= self._tables[parameter][levels][:, levels]
        return result

    @cached_property
    def _tables(self) -> list[Floats]:
        """A parameter's factor between all pairs of its levels."""
        return [
            1 - share + share * matern((differences / length) ** 2)
            for differences, share, length in zip(
                self.groups.differences, self.shares, self.lengths, strict=True
            )
        ]


def fitted_relevance(
    start: Relevance, indices: Indices, targets: Floats, beliefs: Beliefs, rng: np.random.Generator
) -> Relevance:
    """`start` with each length, share and the noise moved by a step where that makes `targets` likelier.

    One pass over the parameters in random order: called again as observations come, it follows them.
    """
    best, value = start, _plausibility(start, indices, targets, beliefs)
    for parameter in rng.permutation(len(start.groups.counts)).tolist():
        for change in (_longer, _larger_share):
            for sign in (-1, 1):
                tried = change(best, parameter, sign)
                found = _plausibility(tried, indices, targets, beliefs)
                if found > value:
                    best, value = tried, found
    for sign in (-1, 1):
        noise = best.noise * math.exp(sign * _NOISE_STEP)
        tried = replace(best, noise=min(max(noise, _LEAST_NOISE), _LARGEST_NOISE))
        found = _plausibility(tried, indices, targets, beliefs)
        if found > value:
            best, value = tried, found
    return best


def _longer(covariance: Relevance, parameter: int, sign: int) -> Relevance:
    lengths = covariance.lengths.copy()
    moved = lengths[parameter] * math.exp(sign * _LENGTH_STEP)
    lengths[parameter] = min(max(moved, _LEAST_LENGTH), _LARGEST_LENGTH)
    return replace(covariance, lengths=lengths)


def _larger_share(covariance: Relevance, parameter: int, sign: int) -> Relevance:
    shares = covariance.shares.copy()
    logit = math.log(shares[parameter] / (1 - shares[parameter])) + sign * _LOGIT_STEP
    shares[parameter] = 1 / (1 + math.exp(-min(max(logit, -_LARGEST_LOGIT), _LARGEST_LOGIT)))
    return replace(covariance, shares=shares)


def _plausibility(covariance: Relevance, indices: Indices, targets: Floats, beliefs: Beliefs) -> float:
    """Log of prior times likelihood with the process variance profiled out, up to a constant."""
    size = len(targets)
    gram = covariance.gram(indices)
    gram[np.diag_indices(size)] += covariance.noise
    factor = np.linalg.cholesky(gram)
    white = np.linalg.solve(factor, targets)
    scatter = (white @ white + 1) / (size + 1)
    likelihood = -0.5 * size * math.log(scatter) - np.log(np.diag(factor)).sum()
    logits = np.log(covariance.shares / (1 - covariance.shares))
    unlikely = (
        (np.log(covariance.lengths / beliefs.length) ** 2).sum() / _LENGTH_SPREAD**2
        + ((logits - beliefs.logit) ** 2).sum() / _LOGIT_SPREAD**2
        + (math.log(covariance.noise / beliefs.noise) / _NOISE_SPREAD) ** 2
    )
    return float(likelihood - 0.5 * unlikely)


def _differences(count: int, ordered: bool) -> Floats:
    """Between all pairs of levels: steps of the whole range, or 1 where names differ."""
    levels = np.arange(count)
    steps = np.abs(levels[:, None] - levels[None, :]).astype(np.float64)
    return np.asarray(steps / max(1, count - 1) if ordered else steps > 0, dtype=np.float64)
