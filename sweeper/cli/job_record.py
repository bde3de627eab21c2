"""What a job of a multirun leaves behind: how it ended and what it found out, a JSON file where another process ran it.

A job that a Hydra launcher runs elsewhere shares no memory with the command. Its folder, `jobs/NAME` in the
results folder, holds a store of its own and this record: written when the job begins, and once more when it ends,
so that one that was killed is known by a record without an end.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeper.atomic import atomic_write
from sweeper.errors import StorageError
from sweeper.status import Status
from sweeper.wire import WireError, from_wire, to_wire

__all__ = [
    "JOBS_FOLDER",
    "JobRecord",
    "job_folder",
    "read_records",
    "record_before",
    "set_aside_records",
    "write_record",
]

JOBS_FOLDER = "jobs"
_FILE = "job.json"
_BEFORE = "job.before.json"


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job: its number from 1 on, what was `asked` of it, the process that runs it, its exit code, its resolved
    configuration and its facts.

    `ended` is false while it runs, and for ever where its process was killed; `begun` is false where `fail_fast`
    kept it from beginning. `ruled_out`: its kernel cannot run here at all, which a report takes for no failure.
    """

    number: int
    asked: str
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    begun: bool = True
    ended: bool = False
    code: int = 0
    ruled_out: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """`job 2 (kernel=tiled shape=odd)`."""
        return f"job {self.number} ({self.asked})"

    @property
    def failed(self) -> bool:
        """Whether it, or a configuration of it, failed."""
        bad = "error" in self.facts or bool(set(self.facts.get("statuses", {})) - {Status.OK.value})
        return bad and not self.ruled_out

    @property
    def stops_others(self) -> bool:
        """Whether it failed and asks that no other job begins."""
        return self.failed and self.config.get("fail_fast") is True


def job_folder(results: Path, overrides: Sequence[str]) -> Path:
    """The folder of the job with these overrides in `results`: the same whatever its number among others is."""
    told = sorted(overrides)
    digest = hashlib.sha256("\n".join(told).encode()).hexdigest()[:8]
    values = {key.lstrip("+"): value for key, _, value in (override.partition("=") for override in overrides)}
    words = [
        re.sub(r"[^A-Za-z0-9_.]+", "+", values[key])[:40] for key in ("kernel", "shape") if key in values
    ]
    return results / JOBS_FOLDER / "-".join([*words, digest])


def write_record(record: JobRecord, folder: Path) -> None:
    """Write `record` into the job's `folder`, whole and durably. Raises StorageError."""
    text = json.dumps(to_wire(record), indent=2, allow_nan=False)
    atomic_write(folder / _FILE, text.encode("utf-8", "backslashreplace") + b"\n")


def read_records(results: Path) -> list[tuple[Path, JobRecord]]:
    """The jobs' folders in `results` that hold a record, and the records, in the order of the jobs' numbers.

    Raises StorageError for a record that cannot be read.
    """
    found = []
    for path in sorted((results / JOBS_FOLDER).glob(f"*/{_FILE}")):
        try:
            found.append((path.parent, _record_at(path)))
        except (OSError, ValueError, TypeError, WireError) as error:
            raise StorageError(
                f"{path} is no record of a job: {error}", hint="delete it, and run again"
            ) from None
    return sorted(found, key=lambda pair: pair[1].number)


def set_aside_records(results: Path) -> None:
    """Let the records in `results`, of whichever command they are, be those of the command before.

    Those of the one before that are deleted. The jobs' stores stay.
    """
    for path in (results / JOBS_FOLDER).glob(f"*/{_BEFORE}"):
        path.unlink(missing_ok=True)
    for path in (results / JOBS_FOLDER).glob(f"*/{_FILE}"):
        path.replace(path.with_name(_BEFORE))


def record_before(folder: Path) -> JobRecord | None:
    """How the job in `folder` ended under the command before; None where that is not known."""
    try:
        return _record_at(folder / _BEFORE)
    except (OSError, ValueError, TypeError, WireError):
        return None


def _record_at(path: Path) -> JobRecord:
    """Raises OSError, ValueError, TypeError and WireError where there is no whole record."""
    return from_wire(JobRecord, json.loads(path.read_text(encoding="utf-8")))
