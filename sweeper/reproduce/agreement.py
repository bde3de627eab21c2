"""Whether a row that was measured again agrees with what was published."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sweeper.compare import BETWEEN_RUNS, Estimate, Ratio, Row
from sweeper.compare.ratio import adjusted, ratio
from sweeper.model import TimeSource

__all__ = ["WIDEST", "Agreement", "Outcome", "judge"]

WIDEST = 0.05
"""An interval that reaches further than this to either side, relative, is too wide to agree with anything."""
_LEVEL = 0.025


class Agreement(StrEnum):
    """What may be said of a row: AGREES, it is now FASTER or SLOWER than published, UNSURE, or it FAILED."""

    AGREES = "agrees"
    FASTER = "faster"
    SLOWER = "slower"
    UNSURE = "unsure"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A published row `then`, the same one `now` (None where it was not even asked), and what that says.

    `ratio` is the time now ÷ then, None for a failure, whose `reason` says why. `cache` is the state of the L2 cache
    that both were timed with.
    """

    then: Row
    now: Row | None
    agreement: Agreement
    ratio: Ratio | None = None
    cache: str = ""
    reason: str = ""


def judge(
    pairs: Sequence[tuple[Row, Row | str]], least_effect: float = 0.01, between_runs: float = BETWEEN_RUNS
) -> list[Outcome]:
    """The outcome of each published row with what it came to now, or with the reason that it was not run.

    A row AGREES where the interval of its ratio, at 95 % for all rows at once (Holm), has a value within a factor of
    1 + `least_effect` and is no wider than `WIDEST`. What is exact on both sides agrees where it is equal.
    """
    ratios = [_ratio(then, now, between_runs) for then, now in pairs]
    guessed = [i for i, one in enumerate(ratios) if one is not None and not one.exact]
    chances = adjusted([_beyond(ratios[i], least_effect) for i in guessed])
    claimed = {i for i, chance in zip(guessed, chances, strict=True) if chance <= _LEVEL}
    return [
        _outcome(then, now, one, claimed=i in claimed)
        for i, ((then, now), one) in enumerate(zip(pairs, ratios, strict=True))
    ]


def _ratio(then: Row, now: Row | str, between_runs: float) -> Ratio | None:
    if isinstance(now, str) or not now.ok or then.cache not in now.times:
        return None
    a, b = then.times[then.cache], now.times[then.cache]
    if then.source == now.source == TimeSource.REPLAYED.value:
        a, b = _exact(a), _exact(b)
    return ratio(a, b, between_runs)


def _exact(one: Estimate) -> Estimate:
    """A time that was looked up: looking again finds the same."""
    return Estimate(one.ms, 0.0, math.inf)


def _beyond(one: Ratio | None, least_effect: float) -> float:
    """The one-sided p-value of the ratio being no further from 1 than `least_effect`."""
    if one is None or math.isnan(one.error):
        return 1.0
    limit = 1 + least_effect if one.ratio > 1 else 1 / (1 + least_effect)
    inside = 1 / (1 + least_effect) <= one.ratio <= 1 + least_effect
    return 1.0 if inside else one.chance(limit) / 2


def _outcome(then: Row, now: Row | str, one: Ratio | None, *, claimed: bool) -> Outcome:
    if isinstance(now, str):
        return Outcome(then, None, Agreement.FAILED, cache=then.cache, reason=now)
    if one is None:
        why = f"{now.status}: {now.reason}" if not now.ok else f"no time with a {then.cache or 'known'} cache"
        return Outcome(then, now, Agreement.FAILED, cache=then.cache, reason=why)
    if one.exact:
        said = Agreement.AGREES if one.ratio == 1 else _side(one)
    elif claimed:
        said = _side(one)
    else:
        interval = one.interval()
        narrow = interval.high <= interval.ratio * (1 + WIDEST)
        said = Agreement.AGREES if narrow else Agreement.UNSURE
    return Outcome(then, now, said, one, then.cache)


def _side(one: Ratio) -> Agreement:
    return Agreement.FASTER if one.ratio < 1 else Agreement.SLOWER
