"""The Pareto front of time and energy as a person sees it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sweeper.cli.terminal import format_joules, format_ms
from sweeper.model import Point
from sweeper.table.pareto import pareto
from sweeper.table.ranking import rankable

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

__all__ = ["show_front"]

_COLUMNS = ("configuration", "time", "energy", "W", "GFLOP/s/W", "slower", "more energy", "saves")


def show_front(table: pd.DataFrame, out: Console) -> None:
    """The front of the one study in `table`, a line each, with what its members cost."""
    import pandas as pd
    from rich.table import Table

    front = pareto(table)
    if front.empty:
        return
    count = len(front)
    out.print(f"  {count} that no other beats in both time and energy, of {len(rankable(table))}:")
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for place, name in enumerate(_COLUMNS):
        shown.add_column(name, justify="right" if place else "left")
    for _, row in front.iterrows():
        rate = row["gflops_per_w"]
        shown.add_row(
            str(Point.of(json.loads(row["params"]))),
            format_ms(row["time_ms"]),
            format_joules(row["energy_j"]),
            f"{row['energy_w']:.0f}",
            "" if pd.isna(rate) else f"{rate:,.3g}",
            *(f"{row[name]:.1f} %" for name in ("time_percent", "energy_percent", "speed_saves_percent")),
        )
    out.print(shown)
    out.print(
        "  slower than the fastest; more energy than the thriftiest; energy that it saves against the fastest"
    )
