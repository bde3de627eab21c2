"""A covariance that learns which parameters matter, alone and together.

    k(x, z) = Π_j ( 1 − s_j + s_j m(|x_j − z_j| / l_j) ),   0 < s_j < 1

Multiplied out this is a sum over all sets of parameters, each with the product of its parameters' correlations m
(Matérn 5/2): main effects, pairs, triples, and so on, weighted by the shares s_j (an ANOVA decomposition: Durrande
et al., Journal of Multivariate Analysis 115, 2013). Small shares give a nearly additive model, which few
observations determine; large ones the usual product. Shares and lengths maximise the likelihood times a prior.

A point is given by group codes: parameters are numbered in groups of some hundred combinations, so that the
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

_GROUP_CODES = 100
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

    def codes(self, indices: Indices) -> npt.NDArray[np.int32]:
        """Group codes (points, groups) of level indices (points, parameters)."""
        codes = np.zeros((len(indices), len(self.members)), dtype=np.int32, order="F")
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
        result: Floats = self._products[0][point[0]].take(points[:, 0])
        for place, table in enumerate(self._products[1:], start=1):
            result *= table[point[place]].take(points[:, place])
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
            _table(differences, length, share)
            for differences, share, length in zip(
                self.groups.differences, self.shares, self.lengths, strict=True
            )
        ]

    @cached_property
    def _products(self) -> list[Floats]:
        """A group's factor between all pairs of its codes, in single precision."""
        products = []
        for group in self.groups.members:
            product = np.ones((1, 1), dtype=np.float32)
            for parameter in group:
                product = np.kron(product, self._tables[parameter].astype(np.float32))
            products.append(product)
        return products


def fitted_relevance(
    start: Relevance, indices: Indices, targets: Floats, beliefs: Beliefs, rng: np.random.Generator
) -> Relevance:
    """`start` with each parameter's length or share, and the noise, moved a step where `targets` get likelier.

    One pass over the parameters in random order: called again as observations come, it follows them.
    """
    fit = _Fit(start, indices, targets, beliefs)
    for parameter in rng.permutation(len(start.groups.counts)).tolist():
        fit.move(parameter)
    fit.move_noise()
    return fit.found()


class _Fit:
    """A covariance under way, with what its covariances at the observed points are made of.

    Of the product over the parameters only one factor changes with a step, and the steps of one parameter are
    judged together.
    """

    def __init__(self, start: Relevance, indices: Indices, targets: Floats, beliefs: Beliefs) -> None:
        self._start, self._targets, self._beliefs = start, targets, beliefs
        self._levels = [indices[:, j] for j in range(indices.shape[1])]
        self._lengths = start.lengths.copy()
        self._logits = np.log(start.shares / (1 - start.shares))
        self._noise = start.noise
        self._factors = [self._factor(j, *self._at(j)) for j in range(len(self._levels))]
        self._product: Floats = np.multiply.reduce(self._factors)
        self._likelihood = float(self._likelihoods([self._product], [self._noise])[0])

    def move(self, parameter: int) -> None:
        """Take the step of a parameter's length or share that helps most, if one does.

        One only, so that a covariance follows few observations slowly.
        """
        length, logit = self._at(parameter)
        steps = [
            (max(length * math.exp(-_LENGTH_STEP), _LEAST_LENGTH), logit),
            (min(length * math.exp(_LENGTH_STEP), _LARGEST_LENGTH), logit),
            (length, max(logit - _LOGIT_STEP, -_LARGEST_LOGIT)),
            (length, min(logit + _LOGIT_STEP, _LARGEST_LOGIT)),
        ]
        # No factor is 0: shares are below 1.
        others = self._product / self._factors[parameter]
        factors = [self._factor(parameter, *step) for step in steps]
        products = [others * factor for factor in factors]
        likelihoods = self._likelihoods(products, [self._noise] * len(steps))
        found = likelihoods + [self._prior(*step) for step in steps]
        best = int(found.argmax())
        if found[best] > self._likelihood + self._prior(length, logit):
            self._lengths[parameter], self._logits[parameter] = steps[best]
            self._factors[parameter], self._product = factors[best], products[best]
            self._likelihood = float(likelihoods[best])

    def move_noise(self) -> None:
        """Take the step of the noise that helps, if one does."""
        steps = [
            max(self._noise * math.exp(-_NOISE_STEP), _LEAST_NOISE),
            min(self._noise * math.exp(_NOISE_STEP), _LARGEST_NOISE),
        ]
        likelihoods = self._likelihoods([self._product] * 2, steps)
        found = likelihoods + [self._noise_prior(step) for step in steps]
        best = int(found.argmax())
        if found[best] > self._likelihood + self._noise_prior(self._noise):
            self._noise, self._likelihood = steps[best], float(likelihoods[best])

    def found(self) -> Relevance:
        """The covariance as it is now."""
        return replace(
            self._start, lengths=self._lengths, shares=1 / (1 + np.exp(-self._logits)), noise=self._noise
        )

    def _at(self, parameter: int) -> tuple[float, float]:
        return float(self._lengths[parameter]), float(self._logits[parameter])

    def _factor(self, parameter: int, length: float, logit: float) -> Floats:
        table = _table(self._start.groups.differences[parameter], length, 1 / (1 + math.exp(-logit)))
        levels = self._levels[parameter]
        return table[levels][:, levels]

    def _likelihoods(self, products: Sequence[Floats], noises: Sequence[float]) -> Floats:
        """Log likelihoods with the process variance profiled out, up to a constant."""
        size = len(self._targets)
        # The factor of [[K, y], [yᵀ, c]] has L⁻¹ y for its last row: one factorisation gives both terms.
        bordered = np.empty((len(products), size + 1, size + 1))
        for one, product, noise in zip(bordered, products, noises, strict=True):
            one[:size, :size] = product
            one[np.diag_indices(size)] += noise
            one[size, :size] = one[:size, size] = self._targets
            one[size, size] = 1 + self._targets @ self._targets / noise
        factors = np.linalg.cholesky(bordered)
        scatter = ((factors[:, size, :size] ** 2).sum(axis=1) + 1) / (size + 1)
        half_determinants = np.log(np.diagonal(factors, axis1=1, axis2=2)[:, :size]).sum(axis=1)
        return np.asarray(-0.5 * size * np.log(scatter) - half_determinants)

    def _prior(self, length: float, logit: float) -> float:
        beliefs = self._beliefs
        return -0.5 * (
            (math.log(length / beliefs.length) / _LENGTH_SPREAD) ** 2
            + ((logit - beliefs.logit) / _LOGIT_SPREAD) ** 2
        )

    def _noise_prior(self, noise: float) -> float:
        return -0.5 * (math.log(noise / self._beliefs.noise) / _NOISE_SPREAD) ** 2


def _table(differences: Floats, length: float, share: float) -> Floats:
    """A parameter's factor of the covariance for `differences` between levels."""
    return 1 - share + share * matern((differences / length) ** 2)


def _differences(count: int, ordered: bool) -> Floats:
    """Between all pairs of levels: steps of the whole range, or 1 where names differ."""
    levels = np.arange(count)
    steps = np.abs(levels[:, None] - levels[None, :]).astype(np.float64)
    return np.asarray(steps / max(1, count - 1) if ordered else steps > 0, dtype=np.float64)
