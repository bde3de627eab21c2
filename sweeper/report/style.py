"""How the static figures look: the colours and measures of the page's light theme."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

__all__ = [
    "ACCENT", "ACCENT_SOFT", "BAD", "CATEGORIES", "DIM", "GRID", "HEAT", "INK", "MARKERS", "SOFT",
    "axes", "figure", "level_ticks", "log_ticks", "save",
]  # fmt: skip

INK, SOFT, GRID, LINE, DIM = "#16191d", "#59616b", "#eceef1", "#dfe3e7", "#9aa3ad"
ACCENT, ACCENT_SOFT, BAD = "#0062b1", "#a3c4e2", "#b3400b"
CATEGORIES = ("#0062b1", "#c8500a", "#00805c", "#a8488a", "#3b93c9", "#a87200", "#6b5bc0", "#5f6b76")
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")
HEAT = ("#08488a", "#8db8dd", "#eef2f6")
_WIDTH, _DPI = 8.6, 130


def figure(height: float, title: str, **kinds: Any) -> tuple[Any, Any]:
    """A figure `height` inches high with its title, and its axes (an array of them where `kinds` asks for more)."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Text is ours or a kernel's name: a dollar in it is no formula.
    mpl.rcParams["text.parse_math"] = False
    made = Figure(figsize=(_WIDTH, height), dpi=_DPI, facecolor="white", layout="constrained")
    made.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    return made, made.subplots(**kinds)


def axes(place: Any, x: str, y: str) -> None:
    """Axis labels with units, a faint grid, no frame."""
    from matplotlib.ticker import FuncFormatter, ScalarFormatter

    place.set_xlabel(x, fontsize=9, color=SOFT)
    place.set_ylabel(y, fontsize=9, color=SOFT)
    place.tick_params(labelsize=8.5, colors=SOFT, length=3, width=0.7)
    place.grid(visible=True, color=GRID, linewidth=0.8)
    place.set_axisbelow(True)
    for axis in (place.xaxis, place.yaxis):
        if isinstance(axis.get_major_formatter(), ScalarFormatter):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    for side, spine in place.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set(color=LINE, linewidth=0.8)


def log_ticks(axis: Any, low: float, high: float) -> None:
    """Ticks at 1, 2 and 5 of each decade, written out."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    if low > 0 and high / low < 2.5:
        from matplotlib.ticker import MaxNLocator

        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        axis.set_minor_locator(FixedLocator([]))
        return
    decades = math.log10(high / low) if low > 0 and high > low else 1.0
    steps: Sequence[float] = (1,) if decades > 5 else (1, 3) if decades > 2.2 else (1, 1.5, 2, 3, 5, 7)
    first, last = math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1
    ticks = [s * 10.0**e for e in range(first, last) for s in steps]
    axis.set_major_locator(FixedLocator([tick for tick in ticks if low * 0.98 <= tick <= high * 1.02]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(FixedLocator([]))


def level_ticks(axis: Any, levels: Sequence[str], most: int = 12) -> None:
    """A parameter's levels as ticks, every so many of them where they are more than `most`."""
    every = math.ceil(len(levels) / most)
    places = range(0, len(levels), every)
    axis.set_ticks(list(places), [levels[place][:14] for place in places])


def save(made: Any) -> bytes:
    """The PNG's bytes; nothing in them tells when or by what it was drawn."""
    import io

    out = io.BytesIO()
    made.savefig(out, format="png", metadata={"Software": None}, pil_kwargs={"compress_level": 6})
    return out.getvalue()
