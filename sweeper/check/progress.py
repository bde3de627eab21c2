"""How far a check is, while it runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from sweeper.check.plan import Plan
from sweeper.check.report import Outcome
from sweeper.cli.terminal import progress_bar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = ["LiveCases"]

_PLAIN_INTERVAL_S = 5.0


class LiveCases:
    """A bar on a terminal; elsewhere a line every few seconds."""

    def __init__(self, out: Console, plan: Plan) -> None:
        self._out = out
        self._name = plan.spec.name
        self._total = len(plan.cases)
        self._done = self._wrong = 0
        self._said = time.monotonic()
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        if self._out.is_terminal:
            self._progress = progress_bar(self._out, "wrong")
            self._progress.start()
            self._task = self._progress.add_task(self._name, total=self._total, wrong="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def finished(self, outcome: Outcome) -> None:
        self._done += 1
        self._wrong += bool(outcome.defects)
        wrong = f"{self._wrong} wrong" if self._wrong else ""
        if self._progress is not None:
            self._progress.update(self._task, advance=1, wrong=wrong)
        elif time.monotonic() - self._said > _PLAIN_INTERVAL_S:
            self._said = time.monotonic()
            also = f", {wrong}" if wrong else ""
            self._out.print(f"{self._name}: {self._done} of {self._total} cases{also}")
