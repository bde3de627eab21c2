"""The best of each shape as Markdown that reads well as plain text too, within 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby

from sweeper.export.chosen import Chosen, Export

__all__ = ["markdown"]

WIDTH = 100
_HEAD = ("shape", "kernel", "#", "time", "% of library", "verdict", "timed")
_RIGHT = {"#", "time", "% of library"}
_NAMES = (0, 1)


def markdown(export: Export) -> str:
    """A table for every device, class and layout, its configurations by number below it, and where all came from."""
    best = [row for row in export.rows if row.best]
    best.sort(key=lambda row: (row.device, row.dtype, row.layout, row.dims))
    parts = ["# Best configurations"]
    for key, members in groupby(best, key=lambda row: (row.device, row.dtype, row.layout)):
        parts.append(_part(", ".join(filter(None, key)), list(members)))
    parts.append("## Where they come from")
    told = [*(price.told() for price in export.prices), *Export(best).origins()]
    parts.append("\n".join(_listed("-", text) for text in told))
    return "\n\n".join(parts) + "\n"


def _part(title: str, rows: Sequence[Chosen]) -> str:
    numbers: dict[tuple[str, str], int] = {}
    for row in rows:
        numbers.setdefault((row.kernel, row.configuration), len(numbers) + 1)
    lines = [_cells(row, numbers[row.kernel, row.configuration]) for row in rows]
    shown = {(row.kernel, row.configuration): row for row in reversed(rows)}
    configurations = [
        _listed(
            f"{number}.",
            " ".join((row.kernel, *(f"{name}={_text(value)}" for name, value in row.params.items()))),
        )
        for key, number in numbers.items()
        for row in [shown[key]]
    ]
    return f"## {_cell(title)}\n\n{_table(lines)}\n\n" + "\n".join(configurations)


def _cells(row: Chosen, number: int) -> tuple[str, ...]:
    return (
        row.sizes,
        row.kernel,
        str(number),
        _time(row.time_ms) + (f" (+{100 * (row.slowdown - 1):.1f} %)" if row.slowdown > 1.0005 else ""),
        f"{100 * row.ratio:.1f}" if row.ratio is not None else "",
        f"{row.verdict} {row.library}".strip() if row.verdict else "",
        row.timed,
    )


def _table(rows: Sequence[Sequence[str]]) -> str:
    cells = [list(map(_cell, row)) for row in rows]
    used = [place for place, name in enumerate(_HEAD) if place in _NAMES or any(row[place] for row in cells)]
    head = [_HEAD[place] for place in used]
    cells = [[row[place] for place in used] for row in cells]
    widths = [max(len(head[place]), *(len(row[place]) for row in cells)) for place in range(len(used))]
    # The names of shape and kernel, which come first, give way: what they are cut to is still told apart by #.
    room = WIDTH - 3 * len(used) - 1 - sum(widths[2:])
    widths[0] = min(widths[0], room - min(widths[1], room // 2))
    widths[1] = min(widths[1], room - widths[0])
    cells = [[_clipped(cell, width) for cell, width in zip(row, widths, strict=True)] for row in cells]
    right = [name in _RIGHT for name in head]

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    rule = "|".join(
        f"{'-' * (width + 1)}:" if to_right else "-" * (width + 2)
        for width, to_right in zip(widths, right, strict=True)
    )
    return "\n".join([line(head), f"|{rule}|", *map(line, cells)])


def _time(ms: float) -> str:
    """Three digits or more, in the unit that suits."""
    for unit, scale in (("ns", 1e6), ("µs", 1e3), ("ms", 1.0)):
        if ms * scale < 1000:
            return f"{ms * scale:.4g} {unit}"
    return f"{ms / 1e3:.4g} s"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _clipped(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _listed(mark: str, text: str) -> str:
    return textwrap.fill(
        " ".join(text.split()), WIDTH, initial_indent=f"{mark} ", subsequent_indent=" " * (len(mark) + 1),
        break_on_hyphens=False,
    )  # fmt: skip
