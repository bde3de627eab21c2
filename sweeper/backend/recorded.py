"""The rows of a recorded table, from a `trials.csv` or the `study.db` of a run."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import sqlite3
import statistics
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sweeper.atomic import storage_error
from sweeper.errors import StorageError, SweeperError
from sweeper.expressions import Value
from sweeper.model import Energy, Role, Stage, Status, Trial
from sweeper.record import decode
from sweeper.sqlite_file import connect_read_only

__all__ = ["Recorded", "read_recorded"]

_CSV_COLUMNS = (
    "role", "kernel", "dtype", "dims", "params", "status", "stage", "reason", "time_ms", "time_source",
    "method", "cache", "device", "device_uuid", "driver",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recorded:
    """One row of the table, whichever file it came from."""

    role: Role
    kernel: str
    dtype: str
    dims: Mapping[str, int]
    params: Mapping[str, Value]
    status: Status
    stage: Stage
    reason: str
    samples_ms: tuple[float, ...]
    time_source: str
    method: str
    cache: str
    device: str
    device_uuid: str
    driver: str
    energy: Energy | None = None

    @property
    def time_ms(self) -> float | None:
        """The median of the samples."""
        return statistics.median(self.samples_ms) if self.samples_ms else None


def read_recorded(path: Path) -> list[Recorded]:
    """All rows of the table at `path`, in its order.

    Raises StorageError for a file that cannot be read or is no such table.
    """
    try:
        with path.open("rb") as file:
            start = file.read(16)
    except OSError as error:
        raise storage_error(path, error, doing="read") from error
    return list(_from_store(path) if start.startswith(b"SQLite format 3\x00") else _from_csv(path))


def _from_store(path: Path) -> Iterator[Recorded]:
    try:
        with contextlib.closing(connect_read_only(path)) as connection:
            rows = connection.execute("SELECT * FROM trials ORDER BY id").fetchall()
        for row in rows:
            yield _of_trial(decode(dict(row)))
    except (sqlite3.Error, KeyError, ValueError, SweeperError) as error:
        raise _foreign(path, str(error)) from error


def _of_trial(trial: Trial) -> Recorded:
    samples = trial.timing.samples_ms if trial.timing else ()
    if not samples and trial.predicted_ms is not None:
        samples = (trial.predicted_ms,)
    return Recorded(
        role=trial.role,
        kernel=trial.kernel,
        dtype=trial.dtype,
        dims=trial.dims,
        params=trial.params,
        status=trial.status,
        stage=trial.stage,
        reason=trial.reason,
        samples_ms=samples if all(math.isfinite(s) and s > 0 for s in samples) else (),
        time_source=trial.time_source.value if trial.time_source else "",
        method=trial.timing.method if trial.timing else "",
        cache=trial.timing.cache if trial.timing else "",
        device=trial.device,
        device_uuid=trial.device_uuid,
        driver=trial.driver,
        energy=trial.energy,
    )


def _from_csv(path: Path) -> Iterator[Recorded]:
    try:
        text = path.read_bytes().decode("utf-8")
        whole = text[: text.rfind("\n") + 1]
        lines = csv.DictReader(io.StringIO(whole, newline=""), strict=True)
        _check_header(path, lines.fieldnames or ())
        if whole != text:
            warnings.warn(f"{path}: the last line was cut off and is left out", stacklevel=2)
        for line in lines:
            yield _of_line(path, lines.line_num, line)
    except (UnicodeDecodeError, csv.Error) as error:
        raise _foreign(path, str(error)) from error


def _check_header(path: Path, names: Iterable[str]) -> None:
    missing = [name for name in _CSV_COLUMNS if name not in set(names)]
    if missing:
        raise _foreign(path, f"it has no column {', '.join(missing[:5])}{' …' * (len(missing) > 5)}")


def _of_line(path: Path, number: int, line: Mapping[str, str]) -> Recorded:
    try:
        time = float(line["time_ms"]) if line["time_ms"] else math.nan
        return Recorded(
            role=Role(line["role"]),
            status=Status(line["status"]),
            stage=Stage(line["stage"]),
            dims=dict(json.loads(line["dims"])),
            params=dict(json.loads(line["params"])),
            samples_ms=(time,) if math.isfinite(time) and time > 0 else (),
            **{
                name: line[name]
                for name in ("kernel", "dtype", "reason", "time_source", "method", "cache", "device")
            },
            device_uuid=line["device_uuid"],
            driver=line["driver"],
            energy=_energy(line),
        )
    except (ValueError, TypeError) as error:
        raise _foreign(path, f"line {number}: {error}") from error


def _energy(line: Mapping[str, str]) -> Energy | None:
    """Columns that tables of the first version lack."""
    figures = [line.get(f"energy_{name}") or "" for name in ("j", "low_j", "high_j", "w")]
    if not all(figures):
        return None
    joules, low, high, watts = map(float, figures)
    return Energy(joules, low, high, watts, line.get("energy_source") or "")


def _foreign(path: Path, why: str) -> StorageError:
    return StorageError(
        f"{path} is not a recorded table: {why}",
        hint="give the trials.csv or the study.db of a run of sweeper",
    )
