"""What the figures share: the unit of their values, their best configuration, boxes and wide axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from sweeper.report.contents import Found
from sweeper.report.study import Floats, Study
from sweeper.report.style import log_ticks
from sweeper.report.winner import Winner

__all__ = ["Made", "best_of", "box", "scale", "spread", "time_scale", "value_title"]

Made = tuple[str, bytes] | None
"""A figure's title and its PNG; None where there is nothing to show."""

_TIMES = ((1e3, "s"), (1.0, "ms"), (1e-3, "µs"), (1e-6, "ns"))
_JOULES = ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"))
_WIDE = 4.0


def best_of(found: Found) -> Winner:
    """The best configuration of a problem that has one."""
    assert found.best is not None  # noqa: S101 - problems without one are not drawn
    return found.best


def scale(study: Study, value: float) -> tuple[float, str]:
    """How much of the study's objective, in ms or J, is one of the unit that suits `value`, and that unit."""
    return _of(_JOULES, value) if study.objective == "energy" else time_scale(value)


def time_scale(value: float) -> tuple[float, str]:
    """How many milliseconds are one of the unit that suits `value` of them, and that unit."""
    return _of(_TIMES, value)


def _of(scales: tuple[tuple[float, str], ...], value: float) -> tuple[float, str]:
    return next((each for each in scales if value >= each[0]), scales[-1])


def value_title(found: Found, study: Study, unit: str) -> str:
    """An axis's title for the study's objective."""
    what = "energy a launch" if study.objective == "energy" else "time a launch"
    return f"{'predicted ' if found.problem.predicted else ''}{what} ({unit})"


def spread(place: Any, axis: str, low: float, high: float) -> None:
    """A logarithmic axis where values differ much."""
    if low > 0 and high / low > _WIDE:
        getattr(place, f"set_{axis}scale")("log")
        log_ticks(getattr(place, f"{axis}axis"), low, high)


def box(place: Any, at: float, values: Floats, colour: str, *, lying: bool = False) -> None:
    """Median and quartiles, and whiskers to the farthest value within 1.5 times the box (Tukey)."""
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    reach = 1.5 * (high - low)
    inside = values[(values >= low - reach) & (values <= high + reach)]
    sides = [(at - 0.27, low), (at + 0.27, low), (at + 0.27, high), (at - 0.27, high), (at - 0.27, low)]
    strokes = [
        sides,
        [(at - 0.27, middle), (at + 0.27, middle)],
        [(at, low), (at, inside.min())],
        [(at, high), (at, inside.max())],
    ]
    for stroke in strokes:
        across, along = zip(*stroke, strict=True)
        place.plot(*((along, across) if lying else (across, along)), color=colour, linewidth=1)
