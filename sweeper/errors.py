"""The exception tree; each class carries the exit code that the command line ends with.

SweeperError                 3  something outside one configuration failed
├── ConfigError              2  configuration or usage is wrong
│   ├── ExpressionError      2  an expression cannot be parsed or evaluated
│   └── KernelError          2  a kernel's description and its source do not agree
├── NoValidConfiguration     1  nothing was left to rank: the space is empty or every trial failed
├── SetupError               3  a device, compiler or package is missing or unusable
│   └── WorkerError          3  the process that owns the device cannot be kept alive
├── StorageError             4  results cannot be written or read
└── TrialFailed              –  one configuration failed; becomes a row, never leaves the loop

A failed configuration is a row with a status; only a failed set-up is an exception.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from sweeper.status import Stage, Status

__all__ = [
    "INTERRUPTED",
    "ConfigError",
    "ExpressionError",
    "KernelError",
    "NoValidConfiguration",
    "SetupError",
    "StorageError",
    "SweeperError",
    "TrialFailed",
    "WorkerError",
    "did_you_mean",
]

INTERRUPTED = 130
"""What an interrupted command ends with, as a shell has it for SIGINT; what was measured is kept."""


class SweeperError(Exception):
    """Base of every error of this project.

    `message` says what is wrong, with the value and the place; `hint` says what to do about it.
    """

    exit_code = 3

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class ConfigError(SweeperError):
    """Configuration or usage is wrong."""

    exit_code = 2


class ExpressionError(ConfigError):
    """An expression cannot be parsed, or has no value at the given point."""


class KernelError(ConfigError):
    """A kernel's description is incomplete, or does not agree with its source."""


class NoValidConfiguration(SweeperError):
    """Nothing was left to rank."""

    exit_code = 1


class SetupError(SweeperError):
    """A device, compiler or package is missing or unusable."""


class WorkerError(SetupError):
    """The process that owns the device cannot be started or kept alive."""


class StorageError(SweeperError):
    """Results cannot be written or read."""

    exit_code = 4


class TrialFailed(SweeperError):
    """One configuration failed at `stage` with `status`; the loop turns this into a row.

    `details` holds what the row shows beside the reason (limits and values, a log's path, a check).
    """

    def __init__(
        self,
        status: Status,
        stage: Stage,
        reason: str,
        *,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.stage = stage
        self.reason = reason
        self.details = dict(details or {})


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for the known name nearest to `name`, else an empty string."""
    lowered = {str(k).lower(): str(k) for k in known}
    match = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    return f" (did you mean {lowered[match[0]]!r}?)" if match else ""
