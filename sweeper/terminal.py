"""What a person sees: progress while it runs, a table and a sentence when it is done."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Self

from sweeper.model import Point, Role, Status, TimeSource, Trial
from sweeper.ranking import rankable
from sweeper.result_row import time_ms
from sweeper.tune import Tally

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

__all__ = ["LiveProgress", "console", "format_ms", "results_table", "summary_sentence"]

_SHOWN_ROWS = 10
_PLAIN_INTERVAL_S = 2.0


def console() -> Console:
    """Standard output; 100 columns wide where it is no terminal, so that logs look alike."""
    from rich.console import Console

    tty = sys.stdout.isatty()
    return Console(width=None if tty else 100, highlight=False, soft_wrap=not tty)


class LiveProgress:
    """A bar with the best so far on a terminal; a line every few seconds elsewhere."""

    def __init__(self, out: Console, title: str, total: int) -> None:
        self._out = out
        self._title = title
        self._total = total
        self._done = 0
        self._best: tuple[float, Trial] | None = None
        self._counts: Counter[str] = Counter()
        self._said = time.monotonic()
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        if self._out.is_terminal:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[best]}"),
                console=self._out,
                transient=True,
            )
            self._progress.start()
            self._task = self._progress.add_task(self._title, total=self._total, best="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def finished(self, trial: Trial, *, reused: bool) -> None:
        del reused
        if trial.role is Role.BASELINE:
            return
        self._done += 1
        self._counts[trial.status] += 1
        value = time_ms(trial)
        if value is not None and (self._best is None or value < self._best[0]):
            self._best = (value, trial)
        if self._progress is not None:
            self._progress.update(self._task, advance=1, best=self._best_text())
        elif time.monotonic() - self._said > _PLAIN_INTERVAL_S:
            self._said = time.monotonic()
            failed = self._done - self._counts[Status.OK]
            also = f", {failed} failed" if failed else ""
            self._out.print(f"{self._title}: {self._done} of {self._total}{also}, {self._best_text()}")

    def _best_text(self) -> str:
        if self._best is None:
            return "nothing valid yet"
        value, trial = self._best
        return f"best {format_ms(value)} with {trial.point}"


def format_ms(value: float) -> str:
    """Four significant digits with the unit that suits: `812.3 µs`, `2.683 ms`."""
    for factor, unit in ((1e3, "s"), (1.0, "ms"), (1e-3, "µs")):
        if value >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value * 1e6:.4g} ns"


def results_table(table: pd.DataFrame) -> Table:
    """The best configurations of a results table, and the library's row among them where there is one."""
    from rich.table import Table

    rows = rankable(table).sort_values(["time_ms", "trial"], kind="stable").reset_index(drop=True)
    predicted = (rows["time_source"] == TimeSource.PREDICTED.value).any()
    shown = rows[(rows.index < _SHOWN_ROWS) | (rows["role"] == Role.BASELINE.value)]
    out = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("rank", "configuration"):
        out.add_column(name)
    for name in ("predicted" if predicted else "time", "± %", "GFLOP/s", "% lib", "% roof", "regs", "shared"):
        out.add_column(name, justify="right")
    for place, row in shown.iterrows():
        out.add_row(str(int(str(place)) + 1), *_cells(row))
    return out


def _cells(row: pd.Series) -> list[str]:
    import pandas as pd

    def cell(name: str, form: str, factor: float = 1.0) -> str:
        return "" if pd.isna(row[name]) else format(row[name] * factor, form)

    point = Point.of(json.loads(row["params"]))
    width = row["time_high_ms"] - row["time_low_ms"]
    return [
        row["kernel"] if row["role"] == Role.BASELINE.value else str(point),
        format_ms(row["time_ms"]),
        "" if pd.isna(width) else f"{50 * width / row['time_ms']:.2g}",
        cell("gflops", ",.0f"),
        cell("percent_of_library", ".1f"),
        cell("percent_of_roofline", ".1f"),
        cell("registers", "d"),
        "" if pd.isna(row["shared_bytes"]) else f"{row['shared_bytes'] / 1024:.3g} KB",
    ]


def summary_sentence(tally: Tally, space_size: int, seconds: float) -> str:
    """What was done: how many configurations of how many, how many were reused, how many are valid."""
    candidates = [t for t in tally.trials if t.role is Role.CANDIDATE]
    valid = sum(t.status is Status.OK for t in candidates)
    reused = f", {tally.reused} of them reused from earlier runs" if tally.reused else ""
    return (
        f"{len(candidates)} of {space_size} configurations{reused}; {valid} proved right"
        f" and {len(candidates) - valid} failed, in {seconds:.1f} s"
    )
