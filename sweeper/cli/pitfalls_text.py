"""The price of mistakes in words and figures: a row a pair, and what to look for in its counters."""

from __future__ import annotations

from collections.abc import Sequence

from sweeper.cli.grid import Grid
from sweeper.cli.terminal import format_ms
from sweeper.lessons.pitfalls import Price, Side
from sweeper.model import TimeSource

__all__ = ["grid"]

_HEAD = ("mistake", "spoiled", "sound", "price", "counter", "spoiled", "sound")
_LEFT = (0, 4)
_NONE = "–"


def grid(prices: Sequence[Price], notes: Sequence[str] = ()) -> Grid:
    """The pairs of one shape, precision class and device; `notes` stand below."""
    first = prices[0]
    predicted = first.time_source is TimeSource.PREDICTED
    lines = [f"{price.pitfall.mistake}: {price.pitfall.look}" for price in prices if price.pitfall.look]
    lines += [
        f"{price.pitfall.mistake}, {name}: {side.reason}"
        for price in prices
        for name, side in (("spoiled", price.spoiled), ("sound", price.sound))
        if side.reason
    ]
    if predicted:
        lines.append(
            "times are those that the static model predicts; a mistake without a price is one that it does not see"
        )
    return Grid(
        title=f"pitfalls at {first.shape}{'' if first.dtype == 'float32' else f' ({first.dtype})'} on {first.device}",
        head=_HEAD,
        rows=[_cells(price) for price in prices],
        left=_LEFT,
        notes=[*lines, *notes],
    )


def _cells(price: Price) -> tuple[str, ...]:
    ratio = price.ratio
    # A model that gives both sides one time does not see the mistake.
    if price.time_source is TimeSource.PREDICTED and ratio == 1:
        ratio = None
    counted = price.counted
    name = price.pitfall.counter if counted or not price.pitfall.static else price.pitfall.static
    return (
        price.pitfall.mistake,
        _time(price.spoiled),
        _time(price.sound),
        _NONE if ratio is None else f"{ratio:.2f}×" if ratio < 10 else f"{ratio:.1f}×",
        name,
        *(_figure(side.counter if counted else side.static) for side in (price.spoiled, price.sound)),
    )


def _time(side: Side) -> str:
    return _NONE if side.time_ms is None else format_ms(side.time_ms)


def _figure(value: float | None) -> str:
    if value is None:
        return _NONE
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"
