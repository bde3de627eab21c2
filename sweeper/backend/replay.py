"""Searching a recorded table: every answer is one that was measured (or predicted) before, and says whose.

The table is one that `sweeper.recording` reads. Nothing is built or run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sweeper.backend.base import Outcome
from sweeper.device import DeviceIdentity
from sweeper.errors import ConfigError, StorageError, TrialFailed, did_you_mean
from sweeper.expressions import Value
from sweeper.model import Check, Point, Role, Stage, Status, TimeSource, Timing
from sweeper.recording import Recorded, read_recorded

__all__ = ["Answer", "ReplayTable"]

# Kernel, precision class, sizes and layout.
_Problem = tuple[str, str, tuple[tuple[str, int], ...], str]


class Answer(NamedTuple):
    """What the table has of one configuration."""

    status: Status
    time_ms: float | None
    reason: str


class ReplayTable:
    """The recorded trials in `path`; `select` chooses the kernel and problem that are looked up.

    `identity` is the device they were recorded on. Raises StorageError for a file that is no such table,
    ConfigError for one that mixes devices.
    """

    time_source = TimeSource.REPLAYED

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows = read_recorded(path)
        if not self._rows:
            raise StorageError(f"{path} holds no trials", hint="give a table of a finished run")
        self.identity = _identity(path, self._rows)
        self._chosen: dict[tuple[Role, str], Recorded] = {}
        problems = {_problem(row) for row in self._rows if row.role is Role.CANDIDATE}
        if len(problems) == 1:
            kernel, precision, dims, layout = next(iter(problems))
            self.select(kernel, precision, dict(dims), layout)

    @property
    def has_energies(self) -> bool:
        """Whether any row tells the energy of a launch."""
        return any(row.energy is not None for row in self._rows)

    @property
    def levels(self) -> dict[str, tuple[Value, ...]]:
        """The levels of each parameter that the chosen trials have, in ascending order."""
        found: dict[str, dict[Value, None]] = {}
        for (role, _), row in self._chosen.items():
            for name, value in row.params.items() if role is Role.CANDIDATE else ():
                found.setdefault(name, {})[value] = None
        return {name: tuple(sorted(values, key=_order)) for name, values in found.items()}

    def select(self, kernel: str, dtype: str, dims: Mapping[str, int], layout: str = "") -> None:
        """Look up `kernel` in precision class `dtype` at `dims` from now on.

        `layout` is that of the operands, empty where none is transposed. Raises ConfigError, saying what the
        table has, where it has no trial of them.
        """
        wanted = (kernel, dtype, tuple(sorted(dims.items())), layout)
        chosen = {}
        for row in self._rows:
            if _answers(row, kernel, dtype, dims) and row.layout == layout:
                chosen[row.role, _key(row)] = row
        if not any(role is Role.CANDIDATE for role, _ in chosen):
            raise self._unknown(wanted)
        self._chosen = chosen

    def lookup(self, params: Mapping[str, Value]) -> Answer:
        """How the configuration ended and its time in ms; `infeasible` where the table has no such row."""
        row = self._chosen.get((Role.CANDIDATE, Point.of(params).key))
        if row is None:
            return Answer(Status.INFEASIBLE, None, f"{self.path.name} has no such configuration")
        usable = row.status is Status.OK and row.time_ms is not None
        return Answer(row.status, row.time_ms if usable else None, row.reason)

    def outcome(self, point: Point) -> Outcome:
        """The recorded outcome of `point`. Raises TrialFailed with the recorded failure."""
        row = self._chosen.get((Role.CANDIDATE, point.key))
        if row is None:
            answer = self.lookup(point.params)
            raise TrialFailed(answer.status, Stage.SPACE, answer.reason)
        return self._outcome(row)

    def baseline(self, library: str) -> Outcome:
        """The recorded outcome of a library's kernel. Raises TrialFailed where there is none."""
        row = self._chosen.get((Role.BASELINE, library))
        if row is None:
            raise TrialFailed(Status.INFEASIBLE, Stage.SPACE, f"{self.path.name} has no baseline {library}")
        return self._outcome(row)

    def _outcome(self, row: Recorded) -> Outcome:
        if row.status is not Status.OK:
            raise TrialFailed(row.status, row.stage, row.reason)
        if row.time_ms is None:
            raise TrialFailed(Status.UNSTABLE, Stage.MEASURE, f"{self.path.name} has no time for it")
        note = f"{row.time_source or 'recorded'} on {row.device or 'an unnamed device'} ({self.path.name})"
        check = Check(True, 0, 0, 0.0, 0.0, None, note="as recorded, not checked again")
        method = row.method or "recorded"
        timing = Timing(row.samples_ms, method, row.cache, note=note, energy=row.energy)
        return Outcome(check, None, None, timing)

    def _unknown(self, wanted: _Problem) -> ConfigError:
        known = sorted({_problem(row) for row in self._rows if row.role is Role.CANDIDATE})
        near = did_you_mean(wanted[0], {problem[0] for problem in known})
        return ConfigError(
            f"{self.path} has no trials of {_said(wanted)}{near if wanted[0] not in {p[0] for p in known} else ''}",
            hint=f"it has {'; '.join(_said(problem) for problem in known[:5])}{' …' * (len(known) > 5)}",
        )


def _problem(row: Recorded) -> _Problem:
    return row.kernel, row.dtype, tuple(sorted(row.dims.items())), row.layout


def _answers(row: Recorded, kernel: str, dtype: str, dims: Mapping[str, int]) -> bool:
    """Whether a row is of that problem, as far as its table tells: foreign ones need not name what they measured."""
    if row.role is Role.CANDIDATE and row.kernel and row.dtype and row.kernel != kernel:
        return False
    return (not row.dtype or row.dtype == dtype) and (not row.dims or dict(row.dims) == dict(dims))


def _said(problem: _Problem) -> str:
    kernel, precision, dims, layout = problem
    sizes = " ".join(f"{k}={v}" for k, v in dims)
    return f"{kernel} ({precision}{f', {layout}' if layout else ''}) at {sizes}"


def _key(row: Recorded) -> str:
    """A candidate by its parameters, a library by its name."""
    return row.kernel if row.role is Role.BASELINE else Point.of(row.params).key


def _order(value: Value) -> tuple[bool, Any]:
    return isinstance(value, str), value


def _identity(path: Path, rows: list[Recorded]) -> DeviceIdentity:
    devices = list(dict.fromkeys((row.device, row.device_uuid) for row in rows))
    if len(devices) > 1:
        names = ", ".join(f"{name} {uuid}".strip() for name, uuid in devices[:5])
        raise ConfigError(
            f"{path} mixes trials of {len(devices)} devices: {names}", hint="give a table of one"
        )
    last = rows[-1]
    return DeviceIdentity(name=last.device, uuid=last.device_uuid, driver=last.driver)
