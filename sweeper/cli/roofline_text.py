"""The roofline in words and figures: a row a kernel and shape, and a bar for how much of its roof each reaches."""

from __future__ import annotations

from functools import partial

from sweeper.cli.grid import Grid
from sweeper.cli.terminal import format_ms
from sweeper.lessons.roofline import Roof
from sweeper.model import TimeSource

__all__ = ["bars", "grid"]

_HEAD = ("kernel", "shape", "FLOP/B", "bound by", "time", "GFLOP/s", "GB/s", "roof", "% roof")
_LEFT = (0, 1, 3)
_LEAST_BAR = 10


def grid(roof: Roof) -> Grid:
    """The roof as a table with its chart; the least arithmetic intensity first."""
    predicted = roof.time_source is TimeSource.PREDICTED
    rates = f"arithmetic: {roof.peak_gflops:,.0f} GFLOP/s; memory: {roof.bandwidth_gbs:,.0f} GB/s"
    notes = [f"{rates} of compulsory traffic; they meet at {roof.ridge:.1f} FLOP/B"]
    if predicted:
        notes.append(f"times are those that the static model predicts for {roof.device}; nothing was timed")
    return Grid(
        title=f"roofline of {roof.device}{'' if roof.dtype == 'float32' else f' ({roof.dtype})'}",
        head=tuple("predicted" if predicted and name == "time" else name for name in _HEAD),
        rows=[
            (
                spot.kernel,
                spot.shape,
                f"{spot.intensity:.3g}",
                spot.bound,
                format_ms(spot.time_ms),
                f"{spot.gflops:,.0f}",
                f"{spot.gbs:,.0f}",
                f"{spot.roof_gflops:,.0f}",
                f"{spot.percent:.1f}",
            )
            for spot in roof.spots
        ],
        left=_LEFT,
        notes=notes,
        chart=partial(bars, roof),
    )


def bars(roof: Roof, width: int) -> list[str]:
    """A line a spot, full where it reaches its roof. Above it, by a cache's help, the line is no longer."""
    labels = [f"{spot.kernel} {spot.shape}" for spot in roof.spots]
    names = max(map(len, labels), default=0)
    room = max(width - names - 10, _LEAST_BAR)
    lines = []
    for label, spot in zip(labels, roof.spots, strict=True):
        full = min(round(room * spot.percent / 100), room)
        lines.append(f"{label:{names}} {'█' * full}{'·' * (room - full)} {spot.percent:5.1f} %")
    return lines
