"""What a job says of its search: before it, and what it came to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweeper.cli import terminal
from sweeper.cli.beside import transfer_line
from sweeper.model import TimeSource
from sweeper.space import Space
from sweeper.tune import Confirmation, Study, Tally

if TYPE_CHECKING:
    from rich.console import Console

    from sweeper.table.standings import Standing

__all__ = ["announce", "show_result", "title"]

_USUAL_DTYPE = "float32"


def title(study: Study) -> str:
    """`tiled large`, and the precision class where it is not the usual one."""
    spec = study.spec
    return f"{spec.name} {study.shape}" + (f" ({spec.dtype.name})" if spec.dtype.name != _USUAL_DTYPE else "")


def announce(study: Study, space: Space, out: Console) -> None:
    """Say what a search is about to choose among."""
    dims = " ".join(f"{k}={v}" for k, v in study.dims.items())
    out.print(
        f"{study.spec.name} ({study.spec.dtype.name}) at {study.shape}: {dims}; {len(space)} feasible of"
        f" {space.product_size} configurations on {study.evaluator.identity.name}"
    )


def show_result(
    study: Study,
    space: Space,
    tally: Tally,
    confirmation: Confirmation,
    seconds: float,
    out: Console,
    *,
    brief: bool,
) -> None:
    """Say what the search of one study came to, in `seconds`; `brief` leaves out the tables."""
    from sweeper.cli.front import show_front
    from sweeper.cli.verdicts import left_out
    from sweeper.table import frame
    from sweeper.table.ranking import failure_lines
    from sweeper.table.standings import winner_of

    named = f"{title(study)}: " if brief else ""
    if not brief and tally.valid:
        out.print(terminal.results_table(frame(tally.trials), out.width))
    winner = winner_of(confirmation.confirmed)
    out.print(named + terminal.summary_sentence(tally, len(space), seconds, best=winner is None))
    for line in _how_sure(tally, confirmation, winner, brief=brief):
        out.print(f"  {line}")
    if study.objective == "both" and tally.valid and not brief:
        show_front(frame(tally.trials), out)
    for line in left_out(confirmation):
        out.print(f"  {line}")
    if study.evaluator.time_source is TimeSource.MEASURED:
        out.print(f"  {terminal.where_time_went(tally)}")
    copies = transfer_line(tally)
    if copies:
        out.print(f"  {copies}")
    for line in failure_lines(frame(tally.trials)):
        out.print(f"  {line}")
    for line in terminal.library_failures(tally):
        out.print(f"  {line}")
    log = next((log for t in tally.trials if (log := t.details.get("log"))), None)
    if log:
        out.print(f"  all that the compiler said of the first build error: {log}")


def _how_sure(tally: Tally, confirmation: Confirmation, winner: Standing | None, *, brief: bool) -> list[str]:
    """Who is best by what was timed in turns, or how much one search alone says."""
    from sweeper.cli.verdicts import ties_line, winner_line

    if winner is not None:
        return list(filter(None, (winner_line(winner), ties_line(confirmation.confirmed))))
    sure = None if brief else terminal.certainty(tally)
    return [sure] if sure else []
