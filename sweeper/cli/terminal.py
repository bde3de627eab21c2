"""What a person sees: progress while it runs, a table and a sentence when it is done."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Self

from sweeper.model import Point, Role, Stage, Status, TimeSource, Trial
from sweeper.table.objective import objective_of, rank_value
from sweeper.table.ranking import library_rows, rankable, ranked_by
from sweeper.tune import Tally

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

__all__ = [
    "LiveProgress",
    "console",
    "format_joules",
    "format_ms",
    "library_failures",
    "merged_table",
    "results_table",
    "summary_sentence",
    "where_time_went",
]

_SHOWN_ROWS = 10
_SHOWN_OF_EACH = 4
_FIGURES = ("± %", "GFLOP/s", "% lib", "% roof", "energy", "W", "GFLOP/s/W", "regs", "shared")
_PLAIN_INTERVAL_S = 2.0


def console() -> Console:
    """Standard output; 100 columns wide where it is no terminal, so that logs look alike."""
    from rich.console import Console

    tty = sys.stdout.isatty()
    return Console(width=None if tty else 100, highlight=False, soft_wrap=not tty, markup=False, emoji=False)


def progress_bar(out: Console, field: str) -> Progress:
    """A bar that vanishes when it is done; the task's `field` is shown behind it."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn(f"{{task.fields[{field}]}}"),
        console=out,
        transient=True,
    )


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
            self._progress = progress_bar(self._out, "best")
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
        value = rank_value(trial)
        if value is not None and (self._best is None or value < self._best[0]):
            self._best = (value, trial)
        if self._progress is not None:
            self._progress.update(self._task, advance=1, best=self._best_text().partition(" with ")[0])
        elif time.monotonic() - self._said > _PLAIN_INTERVAL_S:
            self._said = time.monotonic()
            failed = self._done - self._counts[Status.OK]
            also = f", {failed} failed" if failed else ""
            self._out.print(f"{self._title}: {self._done} of {self._total}{also}, {self._best_text()}")

    def _best_text(self) -> str:
        if self._best is None:
            return "nothing valid yet"
        value, trial = self._best
        return f"best {_format_value(value, trial)} with {trial.point}"


def _format_value(value: float, trial: Trial) -> str:
    """The value that `trial` is ranked by, with its unit."""
    return format_joules(value) if objective_of(trial) == "energy" else format_ms(value)


def format_joules(value: float) -> str:
    """Four significant digits with the unit that suits: `812.3 µJ`, `2.683 mJ`."""
    for factor, unit in ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ")):
        if value >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value * 1e9:.4g} nJ"


def format_ms(value: float) -> str:
    """Four significant digits with the unit that suits: `812.3 µs`, `2.683 ms`."""
    for factor, unit in ((1e3, "s"), (1.0, "ms"), (1e-3, "µs")):
        if value >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value * 1e6:.4g} ns"


def results_table(table: pd.DataFrame) -> Table:
    """The best configurations of one study, and the libraries' rows among them where there are any."""
    import pandas as pd

    ranked = rankable(table)
    rows = ranked.assign(_value=ranked_by(ranked)).sort_values(["_value", "trial"], kind="stable")
    rows = rows.head(_SHOWN_ROWS)
    rows.insert(0, "rank", range(1, len(rows) + 1))
    beside = library_rows(table)
    beside.insert(0, "rank", pd.Series(pd.NA, index=beside.index, dtype="Int64"))
    beside = beside.assign(_value=ranked_by(beside))
    return _table(pd.concat([rows, beside]).sort_values("_value", kind="stable") if len(beside) else rows)


def merged_table(table: pd.DataFrame) -> Table:
    """The best few of every kernel at every shape, shape by shape, fastest first; `rank` counts all of a shape."""
    ranked = rankable(table)
    rows = ranked.assign(_value=ranked_by(ranked))
    rows = rows.sort_values(["dtype", "shape", "_value"], kind="stable").reset_index(drop=True)
    rows.insert(0, "rank", rows.groupby(["dtype", "shape"]).cumcount() + 1)
    shown = rows[rows.groupby(["dtype", "shape", "kernel"]).cumcount() < _SHOWN_OF_EACH]
    named = ("dtype", "shape", "kernel") if rows["dtype"].nunique() > 1 else ("shape", "kernel")
    return _table(shown, *named)


def _table(rows: pd.DataFrame, *named: str) -> Table:
    """`rows` for people; columns that hold nothing are left out."""
    import pandas as pd
    from rich.table import Table

    predicted = (rows["time_source"] == TimeSource.PREDICTED.value).any()
    cells = [_cells(row) for _, row in rows.iterrows()]
    titles = ["rank", "configuration", "predicted" if predicted else "time", *_FIGURES]
    shown = [i for i, _ in enumerate(titles) if any(c[i] for c in cells)] if cells else range(3)
    out = Table(box=None, pad_edge=False, header_style="bold")
    for name in named:
        out.add_column(name)
    for i in shown:
        out.add_column(titles[i], justify="left" if i == 1 else "right")
    for (_, row), cell in zip(rows.iterrows(), cells, strict=True):
        out.add_row(*("" if pd.isna(row[n]) else str(row[n]) for n in named), *(cell[i] for i in shown))
    return out


def _cells(row: pd.Series) -> list[str]:
    import pandas as pd

    def cell(name: str, form: str, factor: float = 1.0) -> str:
        return "" if pd.isna(row[name]) else format(row[name] * factor, form)

    point = Point.of(json.loads(row["params"]))
    width = row["time_high_ms"] - row["time_low_ms"]
    return [
        "" if pd.isna(row["rank"]) else str(row["rank"]),
        row["kernel"] if row["role"] == Role.BASELINE.value else str(point),
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


def summary_sentence(tally: Tally, space_size: int, seconds: float, *, best: bool = True) -> str:
    """What was done and found: how many configurations of how many, reused, valid, and the `best`."""
    candidates = [t for t in tally.trials if t.role is Role.CANDIDATE]
    reused = f", {tally.reused} of them reused from earlier runs" if tally.reused else ""
    text = (
        f"{len(candidates)} of {space_size} configurations{reused}; {tally.valid} proved right"
        f" and {len(candidates) - tally.valid} failed, in {seconds:.1f} s"
    )
    ranked = [(value, i) for i, t in enumerate(candidates) if (value := rank_value(t)) is not None]
    if not ranked or not best:
        return text
    value, place = min(ranked)
    return f"{text}; best {_format_value(value, candidates[place])} with {candidates[place].point}"


def library_failures(tally: Tally) -> list[str]:
    """Why a library has no row to compare with; that it has no such product goes without saying."""
    failed = [t for t in tally.trials if t.role is Role.BASELINE and t.status is not Status.OK]
    silent = (Status.INFEASIBLE, Stage.LAUNCH)
    return [f"{t.kernel}: {t.reason}" for t in failed if (t.status, t.stage) != silent]


def where_time_went(tally: Tally) -> str:
    """`GPU busy 81 % of 12.3 s, waiting for builds 1.2 s; search 0.31 s, store 0.22 s`, of a run on GPUs."""
    seconds = tally.seconds
    total, devices = seconds["total"], seconds["device_busy"]
    busy = ", ".join(f"{100 * spent / total:.0f} %" for spent in devices) if total else "0 %"
    which = "GPUs busy" if len(devices) > 1 else "GPU busy"
    return (
        f"{which} {busy} of {total:.1f} s, waiting for builds {seconds['waiting_for_builds']:.1f} s;"
        f" search {seconds.get('search', 0.0):.2f} s, store {seconds.get('store', 0.0):.2f} s"
    )
