"""A search's result in words: what was found, and how sure that is."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sweeper.model import Confirmed, Point, Role, Status, TimeSource

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["as_html", "sentence"]

_ROWS = 8
_USUAL_DTYPE = "float32"
# Shown where any row has them: the column, its title, and how a cell is written.
_FIGURES = (
    ("gflops", "GFLOP/s", ",.0f"),
    ("percent_of_library", "% of library", ".1f"),
    ("percent_of_roofline", "% of roofline", ".1f"),
    ("registers", "registers", ".0f"),
    ("shared_bytes", "shared B", ".0f"),
)


def sentence(table: pd.DataFrame, finals: Sequence[Confirmed]) -> str:
    """`tiled at small on NVIDIA H200: best 37.8 µs with tile=32, confirmed in 12 blocks: … (3 of 3 …)`."""
    from sweeper.table.ranking import failure_lines, rankable

    ranked = rankable(table)
    candidates = table[table["role"] == Role.CANDIDATE.value]
    valid = int((candidates["status"] == Status.OK.value).sum())
    first = candidates.iloc[0]
    title = f"{first['kernel']} at {first['shape']}"
    title += f" ({first['dtype']})" if first["dtype"] != _USUAL_DTYPE else ""
    title += f" on {first['device']}"
    tried = (
        f"{len(candidates)} configuration{'' if len(candidates) == 1 else 's'} tried, {valid} proved right"
    )
    if ranked.empty:
        reasons = "; ".join(failure_lines(table))
        return f"{title}: no valid configuration ({tried}): {reasons}"
    return f"{title}: {_best(ranked.iloc[0], finals)} ({tried})"


def _best(row: pd.Series[Any], finals: Sequence[Confirmed]) -> str:
    from sweeper.cli.terminal import format_joules, format_ms
    from sweeper.cli.verdicts import winner_line
    from sweeper.table.standings import winners_of

    winner = winners_of(finals).get(str(row["study"]))
    if winner is not None:
        return winner_line(winner)
    by_energy = row["objective"] == "energy"
    value = format_joules(row["energy_j"]) if by_energy else format_ms(row["time_ms"])
    text = f"best {value} with {Point.of(json.loads(row['params']))}"
    if row["time_source"] == TimeSource.PREDICTED.value:
        return (
            f"{text}, predicted by the static model and not measured; the results were proved right on this"
            " machine's CPU"
        )
    if row["time_source"] == TimeSource.REPLAYED.value:
        return f"{text}, as a recorded table has it; nothing was run"
    low, high = ("energy_low_j", "energy_high_j") if by_energy else ("time_low_ms", "time_high_ms")
    shown = format_joules if by_energy else format_ms
    return (
        f"{text}, 95 % interval {shown(row[low])} to {shown(row[high])}, not confirmed: the best of a search is also"
        " the luckiest"
    )


def as_html(table: pd.DataFrame, finals: Sequence[Confirmed]) -> str:
    """The sentence, and the best few rows as a table."""
    import pandas as pd

    from sweeper.cli.terminal import format_ms
    from sweeper.table.ranking import rankable

    rows = rankable(table).head(_ROWS)
    figures = [(name, title, form) for name, title, form in _FIGURES if rows[name].notna().any()]
    said = f"<p>{html.escape(sentence(table, finals))}</p>"
    if rows.empty:
        return said
    heads = ["configuration", "time", *(title for _, title, _ in figures)]
    lines = ["".join(f"<th>{html.escape(head)}</th>" for head in heads)]
    for _, row in rows.iterrows():
        cells = [str(Point.of(json.loads(row["params"]))), format_ms(row["time_ms"])]
        cells += ["" if pd.isna(row[name]) else format(row[name], form) for name, _, form in figures]
        lines.append("".join(f"<td>{html.escape(cell)}</td>" for cell in cells))
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"{said}<table>{body}</table>"
