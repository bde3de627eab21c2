"""The ratio of two medians from two runs, its interval, and what may be claimed of many such ratios at once.

Samples of two runs are no pairs, so nothing cancels between them. What is compared is the logarithm of each
median, with three errors:

- within a run, from the samples' order statistics: half of what lies between two of them, over the z of what
  they cover (McKean and Schrader, Commun. Statist. B 13, 1984; for ratios of medians Price and Bonett, J. Stat.
  Comput. Simul. 72, 2002). Samples that depend on each other count as those they are worth.
- where only the interval of a table is there, its wider side over the z of its confidence.
- between runs, which no sample tells: one configuration in another process takes another time. `BETWEEN_RUNS`
  is the standard deviation of a run's own share in it, and the two runs have one each.

The sum is judged by Student's t with the degrees of freedom of Welch and Satterthwaite (Biometrika 34, 1947), by
Wallace's approximation (Ann. Math. Statist. 30, 1959), since few samples make an error that is itself uncertain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, median

import numpy as np

from sweeper.statistics import RatioInterval, Verdict, effective_samples

__all__ = [
    "BETWEEN_RUNS",
    "Estimate",
    "Ratio",
    "adjusted",
    "geometric_mean",
    "of_interval",
    "of_samples",
    "ratio",
    "verdict",
]

BETWEEN_RUNS = 0.002
"""Relative standard deviation of a run's median beyond what its samples tell. Two configurations in 20 fresh
processes each on an H200: 0.21 % and 0.11 % (`results/h200/timing`), the errors within a run included."""

# Two may agree by chance, and then seem to know no error.
_LEAST_SAMPLES = 3
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median in ms with the standard error of its logarithm, and the samples that it is worth.

    `error` is 0 with infinite `worth` where a time is exact, such as a predicted one; NaN where nothing is known.
    """

    ms: float
    error: float
    worth: float

    @property
    def exact(self) -> bool:
        return math.isinf(self.worth)


@dataclass(frozen=True, slots=True)
class Ratio:
    """The time of b ÷ that of a; its logarithm's standard error `error` has `freedom` degrees of freedom."""

    ratio: float
    error: float
    freedom: float

    @property
    def exact(self) -> bool:
        return self.error == 0 and math.isinf(self.freedom)

    def interval(self, confidence: float = 0.95) -> RatioInterval:
        """The ratio's interval; NaN bounds where the samples are too few for one."""
        reach = self.error * _t_of_z(_z(confidence), self.freedom) if not self.exact else 0.0
        return RatioInterval(self.ratio, self.ratio * math.exp(-reach), self.ratio * math.exp(reach), 0)

    def chance(self, against: float = 1.0) -> float:
        """The two-sided p-value of the ratio being `against`; 1 where nothing is known."""
        off = abs(math.log(self.ratio / against))
        if self.exact:
            return 0.0 if off else 1.0
        if math.isnan(self.error):
            return 1.0
        if self.error == 0:
            return 1.0 if off == 0 else 0.0
        z = _z_of_t(off / self.error, self.freedom)
        return math.erfc(z / math.sqrt(2))


def of_samples(samples_ms: Sequence[float]) -> Estimate:
    """The median of raw samples, in the order they were taken. Fewer than three (by worth) tell no error."""
    middle = median(samples_ms)
    worth = math.floor(effective_samples(samples_ms))
    if worth < _LEAST_SAMPLES:
        return Estimate(middle, math.nan, worth)
    rank, z = _rank_and_z(worth)
    if worth < len(samples_ms):  # at the same share of the samples as those of `worth` samples
        rank = max(1, rank * (len(samples_ms) + 1) // (worth + 1))
    ordered = np.sort(np.asarray(samples_ms, dtype=np.float64))
    return Estimate(middle, math.log(ordered[-rank] / ordered[rank - 1]) / (2 * z), worth)


def of_interval(ms: float, low_ms: float, high_ms: float, worth: float) -> Estimate:
    """A median of which a table has the 95 % interval, and how many samples it is worth.

    Conservative: the wider side counts for both, and the interval covers more than 95 %.
    """
    if math.isnan(low_ms) or math.isnan(high_ms) or not 0 < low_ms <= ms <= high_ms:
        return Estimate(ms, math.nan, worth)
    wider = max(math.log(ms / low_ms), math.log(high_ms / ms))
    return Estimate(ms, wider / _z(0.95), _LEAST_SAMPLES if math.isnan(worth) else max(worth, _LEAST_SAMPLES))


def ratio(a: Estimate, b: Estimate, between_runs: float = BETWEEN_RUNS) -> Ratio:
    """The ratio of b's time to a's; `between_runs` is a run's own relative standard deviation.

    Two exact times have an exact ratio, whatever `between_runs`.
    """
    if a.exact and b.exact:
        return Ratio(b.ms / a.ms, 0.0, math.inf)
    within = [(one.error**2, one.worth - 1) for one in (a, b) if not one.exact]
    variance = sum(v for v, _ in within) + 2 * between_runs**2
    uncertain = sum(v**2 / freedom for v, freedom in within if v > 0)
    freedom = variance**2 / uncertain if uncertain else math.inf
    return Ratio(b.ms / a.ms, math.sqrt(variance), freedom)


def adjusted(chances: Sequence[float]) -> list[float]:
    """p-values that hold for all of them at once, in the order given (Holm, Scand. J. Statist. 6, 1979).

    However they depend on each other, the chance that any true hypothesis is rejected stays below the level that
    these are compared with.
    """
    order = sorted(range(len(chances)), key=chances.__getitem__)
    found, least = [1.0] * len(chances), 0.0
    for place, i in enumerate(order):
        least = max(least, min(1.0, (len(chances) - place) * chances[i]))
        found[i] = least
    return found


def verdict(one: Ratio, chance: float, least_effect: float, level: float = 0.05) -> Verdict:
    """SAME where the whole 95 % interval is within a factor of 1 + `least_effect`; else FASTER or SLOWER where
    `chance`, the p-value as adjusted, is at most `level`; else UNSURE.
    """
    interval = one.interval()
    if math.isnan(interval.low) or math.isnan(interval.high):
        return Verdict.UNSURE
    if 1 / (1 + least_effect) <= interval.low and interval.high <= 1 + least_effect:
        return Verdict.SAME
    if chance > level or one.ratio == 1:
        return Verdict.UNSURE
    return Verdict.FASTER if one.ratio < 1 else Verdict.SLOWER


def geometric_mean(ratios: Sequence[Ratio], between_runs: float = BETWEEN_RUNS) -> RatioInterval:
    """The geometric mean of these very ratios, with its 95 % interval; `blocks` is how many they are.

    Those without an error of their own are left out, unless all are. What the samples tell averages out over the
    rows; what a run adds may be common to all its rows, and does not. Raises ValueError for none.
    """
    if not ratios:
        raise ValueError("the mean of no ratio")
    ratios = [one for one in ratios if not math.isnan(one.error)] or ratios
    shared = 0.0 if all(one.exact for one in ratios) else 2 * between_runs**2
    within = sum(max(0.0, one.error**2 - 2 * between_runs**2) for one in ratios if not one.exact)
    mean = math.exp(sum(math.log(one.ratio) for one in ratios) / len(ratios))
    reach = _z(0.95) * math.sqrt(within / len(ratios) ** 2 + shared)
    return RatioInterval(mean, mean * math.exp(-reach), mean * math.exp(reach), len(ratios))


@lru_cache(maxsize=4096)
def _rank_and_z(worth: int) -> tuple[int, float]:
    """Which order statistics, counted from both ends, bound the median, and the z of what they cover.

    Those nearest to (n + 1) / 2 ± √n, as Price and Bonett take them.
    """
    rank = max(1, round((worth + 1) / 2 - math.sqrt(worth)))
    if worth > 1000:  # the normal approximation
        return rank, (worth + 1 - 2 * rank) / math.sqrt(worth)
    below = sum(math.comb(worth, k) for k in range(rank))
    return rank, _NORMAL.inv_cdf(1 - below / 2**worth)


@lru_cache(maxsize=64)
def _z(confidence: float) -> float:
    return _NORMAL.inv_cdf((1 + confidence) / 2)


def _z_of_t(t: float, freedom: float) -> float:
    if math.isinf(freedom):
        return t
    return (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(t * t / freedom))


def _t_of_z(z: float, freedom: float) -> float:
    if math.isinf(freedom) or math.isnan(freedom):
        return z
    stretched = z * (8 * freedom + 3) / (8 * freedom + 1)
    return math.sqrt(freedom * math.expm1(min(stretched * stretched / freedom, 700.0)))
