"""The best configurations as a table that fits the screen: parameters that vary, and figures as far as there is room.

What is left out is in `trials.csv`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sweeper.cli.units import format_joules, format_ms
from sweeper.model import Point, Role, TimeSource
from sweeper.table.ranking import library_rows, rankable, ranked_by

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Group
    from rich.table import Table

__all__ = ["merged_table", "results_table"]

_SHOWN_ROWS = 10
_SHOWN_OF_EACH = 4
_WIDTH = 100
_GAP = 2
_LEAST_CONFIGURATION = 24
# The figures in their order, and in the order in which they are given up where there is no room.
_FIGURES = ("± %", "GFLOP/s", "% lib", "% roof", "energy", "W", "GFLOP/s/W", "regs", "shared")
_GIVEN_UP = ("shared", "regs", "W", "GFLOP/s/W", "% roof", "GFLOP/s")


@dataclass(slots=True)
class _Column:
    """A column of cells; `left` ones hold text."""

    title: str
    cells: list[str]
    left: bool = False

    @property
    def width(self) -> int:
        return max(map(len, [self.title, *self.cells]))


def results_table(table: pd.DataFrame, width: int = _WIDTH) -> Group:
    """The best configurations of one study in `width` columns, the libraries' rows among them where there are any.

    A parameter that has one value in all of them stands above the table, and what is not shown is told below.
    """
    import pandas as pd
    from rich.console import Group

    ranked = rankable(table)
    rows = ranked.assign(_value=ranked_by(ranked)).sort_values(["_value", "trial"], kind="stable")
    left = len(rows) - _SHOWN_ROWS
    rows = rows.head(_SHOWN_ROWS)
    rows.insert(0, "rank", range(1, len(rows) + 1))
    beside = library_rows(table)
    beside.insert(0, "rank", pd.Series(pd.NA, index=beside.index, dtype="Int64"))
    beside = beside.assign(_value=ranked_by(beside))
    shown = pd.concat([rows, beside]).sort_values("_value", kind="stable") if len(beside) else rows
    places = [row for _, row in shown.iterrows()]
    points = [_point(row) for row in places]
    own = [p for p in points if p is not None]
    fixed, varying = _fixed_and_varying(own) if len(own) > 1 else ({}, list(own[0]) if own else [])
    params = [_Column(name, ["" if p is None else str(p.get(name, "")) for p in points]) for name in varying]
    names = [row["kernel"] if p is None else "" for row, p in zip(places, points, strict=True)]
    if any(names) or not params:
        params.insert(0, _Column("", names, left=True))
    columns = _fitted([_ranks(places), *params], _timed(places), width)
    if columns is None:
        whole = ["" if p is None else _text(p, varying) for p in points]
        cells = [name or text for name, text in zip(names, whole, strict=True)]
        columns = _with_configuration([_ranks(places)], cells, _timed(places), width)
    lines: list[Any] = []
    if fixed:
        lines += _line(f"all with {' '.join(f'{name}={value}' for name, value in fixed.items())}", width)
    lines.append(_drawn(columns))
    if left > 0:
        lines += _line(f"{left} more in trials.csv", width)
    return Group(*lines)


def merged_table(table: pd.DataFrame, width: int = _WIDTH) -> Table:
    """The best few of every kernel at every shape, shape by shape, fastest first; `rank` counts all of a shape."""
    ranked = rankable(table)
    rows = ranked.assign(_value=ranked_by(ranked))
    rows = rows.sort_values(["dtype", "shape", "_value"], kind="stable").reset_index(drop=True)
    rows.insert(0, "rank", rows.groupby(["dtype", "shape"]).cumcount() + 1)
    shown = rows[rows.groupby(["dtype", "shape", "kernel"]).cumcount() < _SHOWN_OF_EACH]
    named = ("dtype", "shape", "kernel") if rows["dtype"].nunique() > 1 else ("shape", "kernel")
    places = [row for _, row in shown.iterrows()]
    head = [_Column(name, [str(row[name]) for row in places], left=True) for name in named]
    points = [_point(row) or {} for row in places]
    kernels = [str(row["kernel"]) for row in places]
    varying = {
        kernel: _fixed_and_varying([p for p, k in zip(points, kernels, strict=True) if k == kernel])[1]
        for kernel in dict.fromkeys(kernels)
    }
    whole = [_text(p, list(p)) for p in points]
    brief = [_text(p, varying[k] or list(p)) for p, k in zip(points, kernels, strict=True)]
    figures = _timed(places)
    for cells in (whole, brief):
        columns = _fitted([*head, _ranks(places), _Column("configuration", cells, left=True)], figures, width)
        if columns is not None:
            return _drawn(columns)
    return _drawn(_with_configuration([*head, _ranks(places)], brief, figures, width))


def _point(row: pd.Series) -> dict[str, Any] | None:
    """The parameters of a candidate; None for a library."""
    return None if row["role"] == Role.BASELINE.value else dict(Point.of(json.loads(row["params"])).params)


def _fixed_and_varying(points: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """The parameters that have one value in all of `points`, and the names of the others, in their order."""
    names = list(dict.fromkeys(name for point in points for name in point))
    values = {name: {json.dumps(point.get(name)) for point in points} for name in names}
    fixed = {name: points[0].get(name) for name in names if len(values[name]) == 1}
    return fixed, [name for name in names if name not in fixed]


def _text(point: dict[str, Any], names: Iterable[str]) -> str:
    return " ".join(f"{name}={point[name]}" for name in names if name in point)


def _ranks(places: Sequence[pd.Series]) -> _Column:
    import pandas as pd

    return _Column("rank", ["" if pd.isna(row["rank"]) else str(row["rank"]) for row in places])


def _timed(places: Sequence[pd.Series]) -> list[_Column]:
    """The time and the figures, without those that hold nothing."""
    predicted = any(row["time_source"] == TimeSource.PREDICTED.value for row in places)
    titles = ["predicted" if predicted else "time", *_FIGURES]
    rows = [_figures(row) for row in places]
    columns = [_Column(title, [row[i] for row in rows]) for i, title in enumerate(titles)]
    return [column for i, column in enumerate(columns) if i == 0 or any(column.cells)]


def _figures(row: pd.Series) -> list[str]:
    import pandas as pd

    def cell(name: str, form: str) -> str:
        return "" if pd.isna(row[name]) else format(row[name], form)

    width = row["time_high_ms"] - row["time_low_ms"]
    return [
        format_ms(row["time_ms"]),
        "" if pd.isna(width) else f"{50 * width / row['time_ms']:.2g}",
        cell("gflops", ",.0f"),
        cell("percent_of_library", ".1f"),
        cell("percent_of_roofline", ".1f"),
        "" if pd.isna(row["energy_j"]) else format_joules(row["energy_j"]),
        cell("energy_w", ".0f"),
        cell("gflops_per_w", ",.3g"),
        cell("registers", ".0f"),
        "" if pd.isna(row["shared_bytes"]) else f"{row['shared_bytes'] / 1024:.3g} KB",
    ]


def _total(columns: Sequence[_Column]) -> int:
    return sum(column.width for column in columns) + _GAP * (len(columns) - 1)


def _fitted(head: list[_Column], figures: list[_Column], width: int) -> list[_Column] | None:
    """`head` and as many of the figures as fit; None where not even the time and its accuracy do."""
    figures = list(figures)
    for title in ("", *_GIVEN_UP):
        figures = [column for column in figures if column.title != title or not title]
        if _total([*head, *figures]) <= width:
            return [*head, *figures]
    return None


def _with_configuration(
    head: list[_Column], cells: Sequence[str], figures: list[_Column], width: int
) -> list[_Column]:
    """As `_fitted`, with the configuration cut to what is left."""
    least = [column for column in figures if column.title not in _GIVEN_UP]
    room = width - _total([*head, *least]) - _GAP
    room = max(room, _LEAST_CONFIGURATION)
    cut = [text if len(text) <= room else text[: room - 1] + "…" for text in cells]
    return [*head, _Column("configuration", cut, left=True), *least]


def _drawn(columns: Sequence[_Column]) -> Table:
    from rich.table import Table

    out = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        out.add_column(column.title, justify="left" if column.left else "right", no_wrap=True)
    for row in zip(*(column.cells for column in columns), strict=True):
        out.add_row(*row)
    return out


def _line(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width, break_long_words=False, subsequent_indent="  ")
