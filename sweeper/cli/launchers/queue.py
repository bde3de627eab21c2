"""What SLURM's queue holds of a job array, asked with `squeue`: accounting (`sacct`) is not needed."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from sweeper.errors import SetupError

__all__ = ["Task", "cancel", "queued"]

_ASK_S = 60.0
_GONE = "invalid job id"
# Reasons that nothing but a person's command ends.
_STUCK = re.compile(
    r"held|JobHoldMaxRequeue|BadConstraints|DependencyNeverSatisfied|PartitionConfig|AccountNotAllowed",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Task:
    """A task that runs or waits: its place in the array, 0 for a job that is none, its state, and why it waits."""

    place: int
    state: str
    reason: str

    @property
    def stuck(self) -> bool:
        """Whether it waits for something that will not come by itself."""
        return self.state == "PENDING" and _STUCK.search(self.reason) is not None


def queued(array: str) -> list[Task] | None:
    """The tasks of the array job `array` that run or wait, requeued ones too; None where the queue cannot be asked.

    A controller that is restarted answers again; a job that it has forgotten is in no queue.
    """
    words = ["squeue", "--noheader", "--array", f"--jobs={array}", "--format=%i|%T|%r"]
    try:
        asked = subprocess.run(words, capture_output=True, text=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if asked.returncode != 0:
        return [] if _GONE in asked.stderr.lower() else None
    tasks = []
    for line in asked.stdout.splitlines():
        name, _, rest = line.strip().partition("|")
        state, _, reason = rest.partition("|")
        _, _, place = name.partition("_")
        if name:
            tasks.append(Task(int(place) if place.isdigit() else 0, state, reason))
    return tasks


def cancel(array: str, *options: str) -> None:
    """`scancel` with `options`: of waiting tasks, with a signal, or all. Raises SetupError where there is none."""
    try:
        subprocess.run(
            ["scancel", *options, array], capture_output=True, text=True, timeout=_ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"array {array} cannot be cancelled: {error}", hint=f"scancel {array}") from None
