"""The k configurations that serve a weighted set of problems best.

Each problem is served by the fastest of the chosen ones; the price is how much slower than its own best that is,
as a weighted geometric mean over the problems. Choosing k of n is a facility location problem, NP-hard in general.
Where there are few choices all of them are tried. Otherwise greedy choice, which is within 1 − 1/e of the best gain
(Nemhauser, Wolsey and Fisher, 1978), is improved by exchanges until none helps; the choice for k starts from that
for k − 1, so that prices never rise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from sweeper.errors import ConfigError

__all__ = ["Choice", "choose"]

Floats = npt.NDArray[np.float64]
_MAX_EXCHANGES = 200
_MAX_TRIED = 20_000


@dataclass(frozen=True, slots=True)
class Choice:
    """`rows` are the chosen configurations, `serving` which of them each problem takes.

    `price` is the weighted geometric mean of `slowdowns`, by problem: 1 where everyone has its own best.
    """

    rows: tuple[int, ...]
    serving: tuple[int, ...]
    slowdowns: tuple[float, ...]
    price: float


def choose(times: Floats, most: int, weights: Sequence[float] | None = None) -> list[Choice]:
    """The best choices of 1, 2, … `most` configurations, ended early once the price is 1.

    `times` has a row a configuration and a column a problem, NaN where a configuration does not serve one. Raises
    ConfigError for weights that are not positive, for a problem that no configuration serves, and where no `most`
    configurations together serve all.
    """
    weight = _shares(times, weights)
    if most < 1:
        raise ConfigError(f"{most} configurations cannot serve anything")
    with np.errstate(invalid="ignore"):
        costs = np.log(np.where(np.isnan(times), np.inf, times))
    best = costs.min(axis=0)
    for problem in np.flatnonzero(np.isinf(best)).tolist():
        raise ConfigError(f"no configuration serves problem {problem}")
    # Large rather than infinite, so that one which serves more is a gain even while another is not served at all.
    costs = np.minimum(costs - best, 1e3)
    candidates = _undominated(costs)
    chosen: list[int] = []
    choices: list[Choice] = []
    for _ in range(min(most, len(candidates))):
        chosen = _chosen(costs, weight, candidates, chosen)
        choice = _described(costs, weight, chosen)
        choices.append(choice)
        if choice.price <= 1 + 1e-12:
            break
    if max(choices[-1].slowdowns) > np.exp(500):
        raise ConfigError(f"no {most} configurations serve every problem", hint="allow more configurations")
    return choices


def _shares(times: Floats, weights: Sequence[float] | None) -> Floats:
    given = np.ones(times.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
    if given.shape != (times.shape[1],):
        raise ConfigError(f"{len(given)} weights for {times.shape[1]} problems")
    if not (np.isfinite(given).all() and (given > 0).all()):
        raise ConfigError(f"weights {given.tolist()} are not all positive")
    return np.asarray(given / given.sum())


def _undominated(costs: Floats) -> list[int]:
    """Rows that no other row beats or equals on every problem; of equal ones the first."""
    order = np.argsort(costs.sum(axis=1), kind="stable")
    kept: list[int] = []
    for row in order.tolist():
        if not any((costs[other] <= costs[row]).all() for other in kept):
            kept.append(row)
    return kept


def _total(costs: Floats, weight: Floats, chosen: Sequence[int]) -> float:
    return float(costs[list(chosen)].min(axis=0) @ weight)


def _chosen(costs: Floats, weight: Floats, candidates: Sequence[int], before: Sequence[int]) -> list[int]:
    """One row more than `before`."""
    count = len(before) + 1
    if math.comb(len(candidates), count) <= _MAX_TRIED:
        return list(min(combinations(candidates, count), key=lambda rows: _total(costs, weight, list(rows))))
    return _improved(costs, weight, candidates, [*before, _next(costs, weight, candidates, before)])


def _next(costs: Floats, weight: Floats, candidates: Sequence[int], chosen: Sequence[int]) -> int:
    """The row that lowers the price most beside `chosen`."""
    served = costs[list(chosen)].min(axis=0) if chosen else np.full(costs.shape[1], np.inf)
    rest = [row for row in candidates if row not in chosen]
    totals = np.minimum(costs[rest], served) @ weight
    return rest[int(totals.argmin())]


def _improved(costs: Floats, weight: Floats, candidates: Sequence[int], chosen: Sequence[int]) -> list[int]:
    """`chosen` after exchanges of one row each, as long as one helps."""
    current = list(chosen)
    for _ in range(_MAX_EXCHANGES):
        value = _total(costs, weight, current)
        for place in range(len(current)):
            others = current[:place] + current[place + 1 :]
            tried = [*others, _next(costs, weight, candidates, others)]
            if _total(costs, weight, tried) < value - 1e-12:
                current = tried
                break
        else:
            break
    return current


def _described(costs: Floats, weight: Floats, chosen: Sequence[int]) -> Choice:
    among = costs[list(chosen)]
    serving = among.argmin(axis=0)
    slowdowns = np.exp(np.minimum(among.min(axis=0), 700))
    price = float(np.exp(min(_total(costs, weight, chosen), 700.0)))
    return Choice(
        tuple(chosen),
        tuple(chosen[place] for place in serving.tolist()),
        tuple(slowdowns.tolist()),
        price,
    )
