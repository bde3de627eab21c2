"""Waiting for jobs by what they leave on the disk and by what still runs them, never by what they promised to send."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from sweeper.cli.job_record import JobRecord, read_records
from sweeper.cli.launchers.handed import HandedJob
from sweeper.errors import StorageError

__all__ = ["GRACE_S", "Watch", "say"]

# A file that another host has just written is seen here when the network folder's cache says so.
GRACE_S = 15.0


def say(text: str) -> None:
    """A line of the launcher's own, beside what the jobs print."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201


class Watch:
    """Which of `jobs` have ended, which are lost: neither ended, nor run or to be run by anything.

    A job counts as lost when nothing has run it for `grace_s` seconds and its record still has no end. `tell` gets a
    line for each job that has ended.
    """

    def __init__(
        self,
        jobs: Sequence[HandedJob],
        *,
        grace_s: float = GRACE_S,
        tell: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._jobs = {job.number: job for job in jobs}
        self._results = jobs[0].results
        self._grace_s = grace_s
        self._tell = tell
        self._clock = clock
        self._told: set[int] = set()
        self._alone: dict[int, float] = {}
        self.lost: set[int] = set()

    def look(self, alive: Collection[int] | None) -> bool:
        """Look at the records; `alive` are the jobs that run or wait, None where that cannot be told.

        True where no job is left to wait for.
        """
        ended = set()
        for record in _records(self._results):
            if record.number not in self._jobs or not _over(record):
                continue
            # A task that is queued once more after its end has a record without an end again.
            ended.add(record.number)
            if record.number not in self._told and self._tell is not None:
                self._tell(f"{record.title}: {_how(record)}")
            self._told.add(record.number)
        now = self._clock()
        left = set(self._jobs) - ended
        if alive is not None:
            self._alone = {n: self._alone.get(n, now) for n in left if n not in alive}
        self.lost = {n for n, since in self._alone.items() if n in left and now - since >= self._grace_s}
        return left <= self.lost


def _records(results: Path) -> list[JobRecord]:
    try:
        return [record for _, record in read_records(results)]
    except StorageError:
        # Looked at once more, and told when the command gathers.
        return []


def _over(record: JobRecord) -> bool:
    return record.ended or not record.begun


def _how(record: JobRecord) -> str:
    if not record.begun:
        return "not begun"
    if "error" in record.facts:
        return str(record.facts["error"]).splitlines()[0]
    counts = record.facts.get("statuses", {})
    return ", ".join(f"{count} {status}" for status, count in counts.items()) or "ended"
