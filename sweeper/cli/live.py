"""Progress while a search runs: two lines in place on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from sweeper.cli.units import format_seconds, format_value
from sweeper.model import Role, Status, Trial
from sweeper.table.objective import rank_value
from sweeper.table.row import time_ms

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from sweeper.worker.ticket import Ticket

__all__ = ["LiveProgress"]

_LONGEST_SILENCE_S = 10.0
_SHORTEST_SILENCE_S = 2.0
_WORTH_A_LINE = 0.1
# A rate of fewer results, or of a shorter time, says nothing of the rest.
_LEAST_RESULTS = 5
_LEAST_SECONDS = 2.0
_REFRESHES_PER_S = 4
_BAR = 24


class LiveProgress:
    """How far a search of `total` configurations is: best so far, rate, time left, what failed, what is waited for.

    On a terminal two lines that vanish when it is done; elsewhere, and on a terminal that can do no such thing, plain
    lines, each after ten seconds, or after a tenth of the search and two seconds. `now` is a clock in seconds.
    """

    def __init__(
        self, out: Console, title: str, total: int, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._out = out
        self._title = title
        self._total = total
        self._now = now
        self._done = 0
        self._best: tuple[float, Trial] | None = None
        self._library: tuple[float, str] | None = None
        self._counts: Counter[str] = Counter()
        self._ticket: Ticket | None = None
        self._fresh = 0
        self._began = now()
        self._said = self._began, 0
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._out.is_terminal and not self._out.is_dumb_terminal:
            from rich.live import Live

            self._live = Live(
                get_renderable=self._shown,
                console=self._out,
                refresh_per_second=_REFRESHES_PER_S,
                transient=True,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def waiting(self, ticket: Ticket | None) -> None:
        """Hear of what is waited for from now on."""
        self._ticket = ticket

    def finished(self, trial: Trial, *, reused: bool) -> None:
        self._ticket = None
        if trial.role is Role.BASELINE:
            value = time_ms(trial) if trial.status is Status.OK and trial.timing is not None else None
            if value is not None and (self._library is None or value < self._library[0]):
                self._library = value, trial.kernel
            return
        self._done += 1
        self._fresh += not reused
        self._counts[trial.status.value] += 1
        value = rank_value(trial)
        if value is not None and (self._best is None or value < self._best[0]):
            self._best = (value, trial)
        if self._live is None and self._is_time_for_a_line():
            self._said = self._now(), self._done
            self._out.print(f"{self._title}: {self._line()}")

    def _is_time_for_a_line(self) -> bool:
        silent, more = self._now() - self._said[0], self._done - self._said[1]
        worth = more >= _WORTH_A_LINE * self._total and silent > _SHORTEST_SILENCE_S
        return (worth or silent > _LONGEST_SILENCE_S) and self._done < self._total

    def _line(self) -> str:
        """`20 of 50 (18 ok, 2 build_error), best 812.3 µs (92.1 % of cublas) with tile=16; 4.2/s, 7 s left`."""
        best = "" if self._best is None else f" with {self._best[1].point}"
        pace = ", ".join(filter(None, (self.rate(), self.time_left())))
        return f"{self._done} of {self._total} ({self.statuses()}), {self.best()}{best}" + (
            f"; {pace}" if pace else ""
        )

    def best(self) -> str:
        """`best 812.3 µs (92.1 % of cublas)`; the share once a library's time is known to compare with."""
        if self._best is None:
            return "nothing valid yet"
        value, trial = self._best
        text = f"best {format_value(value, trial)}"
        own = time_ms(trial)
        if self._library is None or own is None:
            return text
        return f"{text} ({100 * self._library[0] / own:.1f} % of {self._library[1]})"

    def statuses(self) -> str:
        """`18 ok, 2 build_error`: the good ones first, then the commonest failure."""
        order = sorted(self._counts.items(), key=lambda item: (item[0] != Status.OK.value, -item[1], item[0]))
        return ", ".join(f"{count} {status}" for status, count in order) or "none yet"

    def rate(self) -> str:
        """`4.2/s` of what was not answered from earlier runs; empty while that is not known."""
        rate = self._rate()
        return "" if rate is None else f"{rate:.2g}/s" if rate < 10 else f"{rate:.0f}/s"

    def time_left(self) -> str:
        """`7 s left` at this rate; empty while that is not known, or where nothing is left."""
        rate, left = self._rate(), self._total - self._done
        return "" if rate is None or left < 1 else f"{format_seconds(left / rate)} left"

    def _rate(self) -> float | None:
        seconds = self._now() - self._began
        if self._fresh < _LEAST_RESULTS or seconds < _LEAST_SECONDS:
            return None
        return self._fresh / seconds

    def phase(self) -> str:
        """What the next result waits for; empty where it is not waited for."""
        ticket = self._ticket
        if ticket is None:
            return ""
        if ticket.library is not None:
            return f"timing {ticket.library}"
        if ticket.build is not None and not ticket.build.done():
            return "building"
        return "verifying and timing"

    def _shown(self) -> RenderableType:
        from rich.text import Text

        width = self._out.width
        share = self._done / self._total if self._total else 1.0
        bar: list[Any] = []
        if width >= 72:
            full = round(_BAR * share)
            bar = [("━" * full, "green"), ("─" * (_BAR - full), "dim"), " "]
        pace = " · ".join(filter(None, (self.rate(), self.time_left(), self.phase())))
        first = Text.assemble(
            (self._title, "bold"), " ", *bar, f"{self._done}/{self._total}", f"  {pace}" if pace else ""
        )
        point = "" if self._best is None else f"  {self._best[1].point}"
        second = Text.assemble("  ", (self.best(), "cyan"), f"  {self.statuses()}", (point, "dim"))
        for line in (first, second):
            line.no_wrap = True
            line.truncate(width, overflow="ellipsis")
        return Text("\n").join([first, second])
