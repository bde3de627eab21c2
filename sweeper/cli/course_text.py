"""A course in words and figures: a row a rung, a bar chart of their rates, and what could not run."""

from __future__ import annotations

from functools import partial

from sweeper.cli.grid import Grid
from sweeper.cli.terminal import format_ms
from sweeper.lessons.course import Course, Rung
from sweeper.model import TimeSource

__all__ = ["bars", "grid"]

_HEAD = ("rung", "kernel", "best configuration", "time", "GFLOP/s", "% lib", "% peak", "gain")
_LEFT = (1, 2)
_LEAST_BAR = 10
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_MARK = "│"


def grid(course: Course) -> Grid:
    """The course as a table with its chart and notes; a column that holds nothing is left out."""
    predicted = course.time_source is TimeSource.PREDICTED
    rows = [_cells(rung) for rung in course.rungs]
    if course.library_ms is not None:
        rate = "" if course.library_gflops is None else f"{course.library_gflops:,.0f}"
        rows.append(("", course.library, "", format_ms(course.library_ms), rate, "100.0", "", ""))
    head = tuple("predicted" if predicted and name == "time" else name for name in _HEAD)
    shown = [i for i in range(len(head)) if any(row[i] for row in rows)]
    dtype = "" if course.dtype == "float32" else f", {course.dtype}"
    return Grid(
        title=f"course at {course.shape} ({course.sizes}{dtype}) on {course.device}",
        head=tuple(head[i] for i in shown),
        rows=[tuple(row[i] for i in shown) for row in rows],
        left=tuple(place for place, i in enumerate(shown) if i in _LEFT),
        notes=_notes(course),
        chart=partial(bars, course) if any(rung.gflops for rung in course.rungs) else None,
    )


def _cells(rung: Rung) -> tuple[str, ...]:
    return (
        "" if rung.number is None else str(rung.number),
        rung.kernel,
        str(rung.point),
        format_ms(rung.time_ms),
        "" if rung.gflops is None else f"{rung.gflops:,.0f}",
        "" if rung.percent_of_library is None else f"{rung.percent_of_library:.1f}",
        "" if rung.percent_of_peak is None else f"{rung.percent_of_peak:.1f}",
        "" if rung.gain is None else f"{_short(rung.gain)}×",
    )


def _short(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}"


def _notes(course: Course) -> list[str]:
    notes = [
        f"not here: {absent.kernel}{'' if absent.number is None else f' (rung {absent.number})'}: {absent.reason}"
        for absent in course.absent
    ]
    if course.time_source is TimeSource.PREDICTED:
        notes.append(f"times are those that the static model predicts for {course.device}; nothing was timed")
    return notes


def bars(course: Course, width: int) -> list[str]:
    """A line a rung, as long as its rate in GFLOP/s; the library's rate is a mark on each of them."""
    rates = [(_label(rung), rung.gflops) for rung in course.rungs if rung.gflops]
    library = course.library_gflops
    if library:
        rates.append((f"   {course.library}", library))
    if not rates:
        return []
    names = max(len(name) for name, _ in rates)
    figures = max(len(f"{rate:,.0f}") for _, rate in rates)
    room = max(width - names - figures - 3, _LEAST_BAR)
    most = max(rate for _, rate in rates)
    mark = None if library is None else min(int(room * library / most), room - 1)
    lines = [f"{'GFLOP/s':>{names + 1 + figures}}"]
    for name, rate in rates:
        bar = _bar(room * rate / most)
        if mark is not None and len(bar) <= mark:
            bar = f"{bar:<{mark}}{_MARK}"
        lines.append(f"{name:<{names}} {rate:>{figures},.0f} {bar}".rstrip())
    return lines


def _label(rung: Rung) -> str:
    return f"{'' if rung.number is None else rung.number:>2} {rung.kernel}"


def _bar(length: float) -> str:
    """A bar to an eighth of a character, at least one eighth long."""
    eighths = max(1, round(8 * length))
    return _EIGHTHS[8] * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
