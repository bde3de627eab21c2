"""What a change of one parameter costs the winner."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sweeper.expressions import Value
from sweeper.importance.configurations import Configurations
from sweeper.importance.model import Neighbour, Outcome, Robustness

__all__ = ["neighbours", "robustness"]

_WITHIN = 1.05

Feasible = Callable[[Mapping[str, Value]], bool | None]
Guess = Callable[[int, int], float | None]


@dataclass(frozen=True)
class _Around:
    """The configurations around one of them."""

    found: Configurations
    winner: int
    rows: Mapping[tuple[int, ...], int]
    feasible: Feasible
    guess: Guess

    def row(self, parameter: int, code: int) -> int | None:
        """Where the winner with that level stands, if it was tried."""
        own = self.found.codes[self.winner].tolist()
        own[parameter] = code
        return self.rows.get(tuple(own))

    def may_be(self, parameter: int, code: int) -> bool:
        """Whether it is not known to be infeasible."""
        changed = self.found.params(self.winner)
        changed[self.found.names[parameter]] = self.found.levels[parameter][code]
        return self.feasible(changed) is not False


def neighbours(found: Configurations, winner: int, feasible: Feasible, guess: Guess) -> tuple[Neighbour, ...]:
    """Every change of one parameter of the configuration at `winner`: the next level below and above, or any other
    category.

    Levels that are known to be infeasible with the others are stepped over, and so are those that were not tried,
    after the nearest of them is named. `feasible` says whether a configuration that was not tried can be, None where
    that is not known; `guess` what a model expects of a parameter's other level, as a slowdown.
    """
    rows = {tuple(codes): row for row, codes in enumerate(found.codes.tolist())}
    around = _Around(found, winner, rows, feasible, guess)
    return tuple(
        neighbour
        for parameter in range(len(found.names))
        for side in _sides(found, winner, parameter)
        for neighbour in _on_side(around, parameter, side)
    )


def robustness(found: Sequence[Neighbour]) -> Robustness:
    """The median and worst slowdown of the measured ones."""
    slowdowns = [one.slowdown for one in found if one.slowdown is not None]
    outcomes = [one.outcome for one in found]
    return Robustness(
        measured=len(slowdowns),
        failed=outcomes.count(Outcome.FAILED),
        not_measured=outcomes.count(Outcome.NOT_MEASURED),
        within=sum(slowdown <= _WITHIN for slowdown in slowdowns),
        median=float(np.median(slowdowns)) if slowdowns else None,
        worst=max(slowdowns, default=None),
    )


def _sides(found: Configurations, winner: int, parameter: int) -> list[list[int]]:
    """Levels to go through in turn: below and above, or each other category by itself."""
    own, count = int(found.codes[winner, parameter]), len(found.levels[parameter])
    if found.ordered[parameter]:
        return [list(range(own - 1, -1, -1)), list(range(own + 1, count))]
    return [[code] for code in range(count) if code != own]


def _on_side(around: _Around, parameter: int, side: Sequence[int]) -> Iterator[Neighbour]:
    missing = False
    for code in side:
        row = around.row(parameter, code)
        if row is not None:
            yield _tried(around, parameter, code, row)
            return
        if not missing and around.may_be(parameter, code):
            missing = True
            yield _untried(around, parameter, code, Outcome.NOT_MEASURED)
    if side and not missing:
        yield _untried(around, parameter, side[0], Outcome.INFEASIBLE)


def _tried(around: _Around, parameter: int, code: int, row: int) -> Neighbour:
    found, winner = around.found, around.winner
    measured = bool(found.valid[row])
    low, high = found.low[row] / found.high[winner], found.high[row] / found.low[winner]
    bounded = measured and math.isfinite(low) and math.isfinite(high)
    return Neighbour(
        parameter=found.names[parameter],
        own=found.levels[parameter][found.codes[winner, parameter]],
        value=found.levels[parameter][code],
        steps=_steps(around, parameter, code),
        outcome=Outcome.MEASURED if measured else Outcome.FAILED,
        slowdown=float(found.values[row] / found.values[winner]) if measured else None,
        low=float(low) if bounded else None,
        high=float(high) if bounded else None,
        reason="" if measured else ": ".join(filter(None, (found.status[row], found.reason[row]))),
        trial=found.trial[row],
    )


def _untried(around: _Around, parameter: int, code: int, outcome: Outcome) -> Neighbour:
    found = around.found
    return Neighbour(
        parameter=found.names[parameter],
        own=found.levels[parameter][found.codes[around.winner, parameter]],
        value=found.levels[parameter][code],
        steps=_steps(around, parameter, code),
        outcome=outcome,
        guess=around.guess(parameter, code) if outcome is Outcome.NOT_MEASURED else None,
    )


def _steps(around: _Around, parameter: int, code: int) -> int:
    if not around.found.ordered[parameter]:
        return 0
    return abs(code - int(around.found.codes[around.winner, parameter]))
