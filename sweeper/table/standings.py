"""Who wins a confirmation, and what may be said of everyone against the winner and each opponent.

Only times of one confirmation are compared, block by block: what drifts cancels. The winner is one of the
configurations, the simplest of those that tie; a library is an opponent and never wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sweeper.model import Confirmed, Role
from sweeper.statistics import RatioInterval, Verdict, decide, paired_log_ratio, verdict

__all__ = ["DEFAULT", "Comparison", "Standing", "latest", "standings", "winner_of", "winners_of"]

DEFAULT = "default"
"""What the kernel's default configuration is called as an opponent."""

_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """The verdict on one against another, and the ratio of their times that it rests on."""

    verdict: Verdict
    ratio: RatioInterval


@dataclass(frozen=True, slots=True)
class Standing:
    """How one of a confirmation came off. `against` has a comparison for each opponent but itself, by name.

    `to_winner` and `against` are empty for one that failed.
    """

    confirmed: Confirmed
    is_winner: bool = False
    to_winner: Comparison | None = None
    against: Mapping[str, Comparison] | None = None


def standings(confirmed: Sequence[Confirmed]) -> list[Standing]:
    """The standing of each of one confirmation, in the order given; nobody wins where nobody finished.

    Intervals hold at 95 % for all configurations at once (Bonferroni), since the blocks that judge the
    winner have chosen it among them.
    """
    blocks = _finished(confirmed)
    configurations = [i for i in blocks if confirmed[i].role is Role.CANDIDATE]
    if not configurations:
        return [Standing(one) for one in confirmed]
    least = confirmed[0].least_effect
    final = decide([blocks[i] for i in configurations], [_cost(confirmed[i]) for i in configurations],
                   least_effect=least)  # fmt: skip
    winner = configurations[final.winner]

    def compare(place: int, other: int) -> Comparison:
        ratio = paired_log_ratio(blocks[place], blocks[other], final.confidence)
        return Comparison(verdict(ratio, least), ratio)

    opponents = {name: i for i in blocks if (name := _opponent(confirmed[i]))}
    found = []
    for place, one in enumerate(confirmed):
        if place not in blocks:
            found.append(Standing(one))
            continue
        against = {name: compare(place, i) for name, i in opponents.items() if i != place}
        found.append(Standing(one, place == winner, compare(place, winner), against))
    return found


def _opponent(one: Confirmed) -> str:
    """What it is called as an opponent of others: `default`, a library's name, or nothing."""
    if one.role is Role.BASELINE:
        return one.kernel
    return DEFAULT if one.is_default else ""


def latest(confirmed: Iterable[Confirmed]) -> dict[str, list[Confirmed]]:
    """The last confirmation of every study."""
    by_study: dict[str, list[Confirmed]] = {}
    for one in confirmed:
        group = by_study.setdefault(one.study, [])
        if group and group[0].confirmation != one.confirmation:
            group.clear()
        group.append(one)
    return by_study


def winners_of(confirmed: Iterable[Confirmed]) -> dict[str, Standing]:
    """Who won the last confirmation of each study that has a winner."""
    found = {study: winner_of(group) for study, group in latest(confirmed).items()}
    return {study: winner for study, winner in found.items() if winner is not None}


def winner_of(confirmed: Sequence[Confirmed]) -> Standing | None:
    """The winner of one confirmation, if anybody finished."""
    return next((standing for standing in standings(confirmed) if standing.is_winner), None)


def _finished(confirmed: Sequence[Confirmed]) -> dict[int, tuple[float, ...]]:
    """The blocks of those that did not fail, by place, cut to those that all of them have."""
    whole = {i: one.blocks_ms for i, one in enumerate(confirmed) if one.blocks_ms and not one.reason}
    count = min(map(len, whole.values()), default=0)
    return {i: times[:count] for i, times in whole.items()}


def _cost(one: Confirmed) -> tuple[int, ...]:
    """Shared memory, then registers, then threads: what a simpler configuration has less of.

    Of two that have as much of all, the default is the simpler one.
    """
    figures = (one.shared_bytes, one.registers, one.threads)
    return (*(_MOST if value is None else value for value in figures), int(not one.is_default))
