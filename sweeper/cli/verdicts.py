"""A confirmation in words: who won, and by how much it is faster or slower than what."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from sweeper.cli.terminal import format_ms
from sweeper.model import Confirmed, Point, Role
from sweeper.statistics import Verdict
from sweeper.table.standings import Comparison, Standing, standings
from sweeper.tune import Confirmation

__all__ = ["comparison_text", "left_out", "ties_line", "winner_line"]


def winner_line(winner: Standing) -> str:
    """`best 812 µs with tile=16, confirmed in 12 blocks: 7.3 % faster than the default (6.9 to 7.6 %), …`."""
    one = winner.confirmed
    value = statistics.median(one.blocks_ms)
    which = f"{Point.of(dict(one.params))}{', the default' if one.is_default else ''}"
    text = f"best {format_ms(value)} with {which}, confirmed in {len(one.blocks_ms)} blocks"
    told = [comparison_text(each, _named(name)) for name, each in (winner.against or {}).items()]
    if one.is_default:
        told.insert(0, "no other is proved faster")
    return f"{text}: {', '.join(told)}" if told else text


def comparison_text(comparison: Comparison, other: str) -> str:
    """The verdict on one against `other`. x % slower takes x % more time; x % faster, the other one does."""
    ratio = comparison.ratio
    if comparison.verdict is Verdict.SAME:
        most = max(ratio.high, 1 / ratio.low) - 1
        return f"the same as {other} (within {_percent(most)} %)"
    if comparison.verdict is Verdict.UNSURE:
        if math.isnan(ratio.low):
            return f"not told from {other} ({ratio.blocks} blocks are too few)"
        return f"not told from {other} ({_signed(ratio.low)} to {_signed(ratio.high)})"
    faster = comparison.verdict is Verdict.FASTER
    middle, low, high = (
        (1 / ratio.ratio, 1 / ratio.high, 1 / ratio.low) if faster else (ratio.ratio, ratio.low, ratio.high)
    )
    word = "faster" if faster else "slower"
    return f"{_percent(middle - 1)} % {word} than {other} ({_percent(low - 1)} to {_percent(high - 1)} %)"


def ties_line(confirmed: Sequence[Confirmed]) -> str | None:
    """Which finalists are not told from the winner, which then is the simplest of them; None where all are."""
    tied = [
        Point.of(dict(each.confirmed.params))
        for each in standings(confirmed)
        if each.confirmed.role is Role.CANDIDATE and not each.is_winner and each.to_winner is not None
        if each.to_winner.verdict in (Verdict.SAME, Verdict.UNSURE)
    ]
    if not tied:
        return None
    return f"not told from it, and no simpler: {'; '.join(map(str, tied))}"


def left_out(confirmation: Confirmation) -> list[str]:
    """What was not confirmed, and why."""
    lines = [
        f"not confirmed: {Point.of(dict(one.params))}: {one.reason}"
        for one in confirmation.confirmed
        if one.reason
    ]
    full = "not confirmed in full" if confirmation.confirmed else "not confirmed"
    return [*lines, f"{full}: {confirmation.why_not}"] if confirmation.why_not else lines


def _named(opponent: str) -> str:
    return "the default" if opponent == "default" else opponent


def _percent(share: float) -> str:
    return f"{100 * share:.1f}" if share < 1 else f"{100 * share:.0f}"


def _signed(ratio: float) -> str:
    return f"{_percent(1 / ratio - 1)} % faster" if ratio < 1 else f"{_percent(ratio - 1)} % slower"
