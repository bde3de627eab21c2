"""What a run says of the way to the device and of the host's own product, where they were measured."""

from __future__ import annotations

from sweeper.cli.terminal import format_ms
from sweeper.model import Role, Trial
from sweeper.table.row import time_ms
from sweeper.tune import Tally

__all__ = ["transfer_line"]


def transfer_line(tally: Tally) -> str | None:
    """The copies, the CPU's time, and how it compares with the best kernel alone and with its copies."""
    timed = [(value, i) for i, t in enumerate(tally.trials) if (value := _measured(t)) is not None]
    if not timed:
        return None
    best_ms, place = min(timed)
    told = tally.trials[place].details["transfers"]
    line = f"copies: {format_ms(told['h2d_ms'])} to the device, {format_ms(told['d2h_ms'])} back"
    if "h2d_pinned_ms" in told:
        line += f" (pinned: {format_ms(told['h2d_pinned_ms'])}, {format_ms(told['d2h_pinned_ms'])})"
    if "cpu_ms" in told:
        alone, whole = (told["cpu_ms"] / ms for ms in (best_ms, best_ms + told["h2d_ms"] + told["d2h_ms"]))
        line += f"; {told['cpu_note']}: {format_ms(told['cpu_ms'])},"
        line += f" {alone:.3g} times the best kernel's time, {whole:.3g} times with copies"
    return line


def _measured(trial: Trial) -> float | None:
    told = trial.role is Role.CANDIDATE and "transfers" in trial.details
    return time_ms(trial) if told and trial.timing is not None else None
