"""What a person sees: progress while it runs, a table and a sentence when it is done."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sweeper.model import Role, Status, TimeSource, Trial
from sweeper.resources import gflops
from sweeper.tune import Tally, time_ms

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

__all__ = ["LiveProgress", "console", "results_table", "status_lines", "summary_sentence"]

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

    def __enter__(self) -> LiveProgress:
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


def ranked(trials: Sequence[Trial]) -> list[tuple[float, Trial]]:
    """Valid trials, baselines included, fastest first; ties in the order they were asked."""
    timed = [(value, t) for t in trials if (value := time_ms(t)) is not None]
    return sorted(timed, key=lambda pair: (pair[0], pair[1].number))


def results_table(trials: Sequence[Trial]) -> Table:
    """The best configurations, with the library's row among them where there is one."""
    from rich.table import Table

    rows = ranked(trials)
    library = min((v for v, t in rows if t.role is Role.BASELINE), default=None)
    predicted = any(t.time_source is TimeSource.PREDICTED for _, t in rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("rank", "configuration"):
        table.add_column(name)
    for name in ("predicted" if predicted else "time", "± %", "GFLOP/s", "% lib", "% roof", "regs", "shared"):
        table.add_column(name, justify="right")
    shown = rows[:_SHOWN_ROWS]
    shown += [row for row in rows[_SHOWN_ROWS:] if row[1].role is Role.BASELINE]
    for value, trial in shown:
        table.add_row(str(rows.index((value, trial)) + 1), *_cells(value, trial, library))
    return table


def _cells(value: float, trial: Trial, library: float | None) -> list[str]:
    roof = trial.details.get("roofline_ms")
    registers = trial.build.registers if trial.build else None
    shared = trial.launch.shared_bytes + trial.launch.static_shared_bytes if trial.launch else None
    name = trial.kernel if trial.role is Role.BASELINE else str(trial.point)
    return [
        name,
        format_ms(value),
        _spread(trial),
        "" if trial.flops is None else f"{gflops(trial.flops, value):,.0f}",
        "" if library is None else f"{100 * library / value:.1f}",
        "" if not roof else f"{100 * roof / value:.1f}",
        "" if registers is None else str(registers),
        "" if shared is None else f"{shared / 1024:.3g} KB",
    ]


def _spread(trial: Trial) -> str:
    """Half the width of the median's 95 % interval, in percent of it."""
    from sweeper.statistics import median_interval

    if trial.timing is None:
        return ""
    low, high = median_interval(trial.timing.samples_ms)
    value = time_ms(trial)
    return f"{50 * (high - low) / value:.2g}" if value else ""


def status_lines(trials: Sequence[Trial]) -> list[str]:
    """`3 wrong_result: …` for every status but ok, with its commonest reason."""
    lines = []
    failed = [t for t in trials if t.status is not Status.OK]
    for status, count in Counter(t.status for t in failed).most_common():
        reasons = Counter(t.reason.splitlines()[0] if t.reason else "" for t in failed if t.status is status)
        reason, times = reasons.most_common(1)[0]
        share = f" ({times} of them)" if times < count else ""
        lines.append(f"{count} {status.value}: {reason}{share}")
    return lines


def summary_sentence(tally: Tally, space_size: int, seconds: float) -> str:
    """What was done: how many configurations of how many, how many were reused, how many are valid."""
    candidates = [t for t in tally.trials if t.role is Role.CANDIDATE]
    valid = sum(t.status is Status.OK for t in candidates)
    reused = f", {tally.reused} of them reused from earlier runs" if tally.reused else ""
    return (
        f"{len(candidates)} of {space_size} configurations{reused}; {valid} proved right"
        f" and {len(candidates) - valid} failed, in {seconds:.1f} s"
    )
