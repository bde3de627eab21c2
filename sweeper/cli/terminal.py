"""What a person sees: progress while it runs, a table and a sentence when it is done."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

from sweeper.cli.live import LiveProgress
from sweeper.cli.result_tables import merged_table, results_table
from sweeper.cli.units import format_joules, format_ms, format_value
from sweeper.model import Role, Stage, Status, Trial
from sweeper.statistics.dependence import series_interval
from sweeper.table.objective import objective_of, rank_value
from sweeper.tune import Tally

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = [
    "LiveProgress",
    "certainty",
    "console",
    "format_joules",
    "format_ms",
    "library_failures",
    "merged_table",
    "progress_bar",
    "results_table",
    "summary_sentence",
    "where_time_went",
]


def console(*, plain: bool = False) -> Console:
    """Standard output; 100 columns wide where it is no terminal, or `plain`, so that logs look alike."""
    from rich.console import Console

    tty = sys.stdout.isatty() and not plain
    return Console(
        force_terminal=None if tty else False,
        width=None if tty else 100,
        highlight=False,
        soft_wrap=not tty,
        markup=False,
        emoji=False,
    )


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
    return f"{text}; best {format_value(value, candidates[place])} with {candidates[place].point}"


def certainty(tally: Tally) -> str | None:
    """How sure it is which one is best, where nothing has been confirmed; None where nothing was valid.

    `its median is known to ± 0.4 % (95 %), 2 others are not told from it; not confirmed`, or that it is predicted.
    """
    ranked = sorted(
        (value, place)
        for place, trial in enumerate(tally.trials)
        if trial.role is Role.CANDIDATE
        and trial.status is Status.OK
        and (value := rank_value(trial)) is not None
    )
    if not ranked:
        return None
    best = tally.trials[ranked[0][1]]
    if best.timing is None:
        alike = sum(value == ranked[0][0] for value, _ in ranked) - 1
        also = f", {_others(alike)} alike" if alike else ""
        return f"predicted by the static model{also}: proved right, and never measured"
    if objective_of(best) == "energy":
        return "best by the energy of one search; not confirmed"
    intervals = [_interval(tally.trials[place]) for _, place in ranked]
    if intervals[0] is None:
        return "best by one search; its samples are too few for an interval"
    low, high = intervals[0]
    tied = sum(interval is not None and interval[0] <= high for interval in intervals[1:])
    alike_text = f", {_others(tied)} not told from it" if tied else ""
    return (
        f"its median is known to ± {50 * (high - low) / ranked[0][0]:.2g} % (95 %){alike_text}; not confirmed"
    )


def _others(count: int) -> str:
    return "1 other" if count == 1 else f"{count} others"


def _interval(trial: Trial) -> tuple[float, float] | None:
    samples = trial.timing.samples_ms if trial.timing is not None else ()
    low, high = series_interval(samples) if samples else (None, None)
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return None
    return low, high


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
