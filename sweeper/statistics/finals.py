"""Who wins among configurations that were timed in turns, and how sure a claim about the winner is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sweeper.statistics.comparison import paired_log_ratio, ties
from sweeper.statistics.intervals import Samples, as_samples

__all__ = ["Final", "decide"]


@dataclass(frozen=True, slots=True)
class Final:
    """`winner` is a place in what `decide` was given, `tied` are those that it was chosen from.

    `confidence` is what each interval of a comparison with the winner must have for all of them to hold
    at once: the same blocks chose the winner, so it may be the luckiest of several.
    """

    winner: int
    tied: tuple[int, ...]
    confidence: float


def decide(
    blocks: Sequence[Samples],
    cost: Sequence[tuple[int, ...]],
    *,
    confidence: float = 0.95,
    least_effect: float = 0.01,
) -> Final:
    """The configuration to name best: of those that tie, the one that costs least.

    `blocks[c]` are configuration c's times, block i beside everybody's block i; `cost[c]` is compared part
    by part. A tie is what cannot be told from the one with the least median, and by the estimate is at
    most `least_effect` slower: where blocks scatter much, a simple configuration that is probably worse
    does not win for want of proof. Raises ValueError as `ties` does, and for no configuration.
    """
    if not blocks or len(blocks) != len(cost):
        raise ValueError(f"{len(blocks)} configurations with {len(cost)} costs: need as many, at least one")
    medians = [float(np.median(as_samples(times))) for times in blocks]
    best = medians.index(min(medians))
    tied = [
        c
        for c in ties(blocks, confidence, least_effect)
        if paired_log_ratio(blocks[c], blocks[best]).ratio <= 1 + least_effect
    ]
    winner = min(tied, key=lambda c: (cost[c], medians[c]))
    return Final(winner, tuple(tied), 1 - (1 - confidence) / len(blocks))
