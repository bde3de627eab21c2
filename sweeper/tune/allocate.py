"""Who of several searches gets the next evaluations of a budget that they share.

Each first gets `LEAST`, one after the other, because before that neither a model nor the past says what is still to be
gained. From then on the next part goes to whoever has most of

    weight · gain / asked

where `gain` is what its own model expects of its most promising configuration (expected improvement of the speed,
relative to the best; Jones, Schonlau and Welch, Journal of Global Optimization 13, 1998). A model's hope is divided by
the number of evaluations that have not fulfilled it: a search that keeps hoping in vain has to stand back. Of a search
without a model the gain is told from its past: records become rarer as 1 / asked, so what the later half of its
evaluations has gained is what the next as many may gain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["LEAST", "Grant", "Standing", "grant", "past_gain"]

LEAST = 24
"""Evaluations that every search has before they compete, or its share where the budget is too small for that."""

_UNKNOWN = 0.3
"""Added to a past gain: one that is 0 so far need not stay 0."""
_LARGEST = 2.0
"""Of a past gain, as a logarithm: from failures to a first valid configuration it is infinite."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a search is: `asked` of `size` configurations, with `weight`.

    `gain` is what its model expects to gain, relative; None where it has none, and `past` counts, by `past_gain`.
    `over` for one that can or may not go on.
    """

    asked: int
    size: int
    weight: float = 1.0
    gain: float | None = None
    past: float = math.inf
    over: bool = False

    @property
    def open(self) -> bool:
        return not self.over and self.asked < self.size


@dataclass(frozen=True, slots=True)
class Grant:
    """`count` more evaluations for the search at `place`."""

    place: int
    count: int


def grant(standings: Sequence[Standing], budget: int, part: int) -> Grant | None:
    """The next part of what is left of `budget`; None when all is spent or nobody asks.

    It is `part` evaluations, or all that is missing to the least. The same standings give the same answer; of equals
    the first that was asked least. Raises ValueError for a part below 1.
    """
    if part < 1:
        raise ValueError(f"a part of {part} evaluations")
    left = budget - sum(one.asked for one in standings)
    rivals = [place for place, one in enumerate(standings) if one.open]
    if left < 1 or not rivals:
        return None
    least = max(1, min(LEAST, budget // len(standings)))
    behind = [place for place in rivals if standings[place].asked < least]
    if behind:
        # One after the other, in one go: who begins later can learn from those before.
        place = min(behind, key=lambda place: (-standings[place].asked, place))
        part = least - standings[place].asked
    else:
        place = min(rivals, key=lambda place: (-_claim(standings[place]), standings[place].asked, place))
    return Grant(place, min(part, left, standings[place].size - standings[place].asked))


def _claim(one: Standing) -> float:
    gain = one.past if one.gain is None else one.gain
    return one.weight * gain / max(one.asked, 1)


def past_gain(values: Sequence[float | None]) -> float:
    """What the later half of `values`, in asked order and None for a failure, has gained, as a logarithm of a ratio.

    Values are positive; less is better.
    """
    half = _least(values[: len(values) // 2])
    now = _least(values)
    if math.isinf(now) or math.isinf(half):
        return _LARGEST + _UNKNOWN
    return min(math.log(half / now), _LARGEST) + _UNKNOWN


def _least(values: Sequence[float | None]) -> float:
    return min((value for value in values if value is not None), default=math.inf)
