"""The rows of a run's own table: its `trials.csv` or its `study.db`."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import sqlite3
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from sweeper.errors import StorageError, SweeperError
from sweeper.kernel.layout import layout_of
from sweeper.model import Energy, Role, Stage, Status, Trial
from sweeper.record import decode
from sweeper.recording.row import Recorded
from sweeper.sqlite_file import connect_read_only

__all__ = ["foreign", "of_csv", "of_store"]

_CSV_COLUMNS = (
    "role", "kernel", "dtype", "dims", "params", "status", "stage", "reason", "time_ms", "time_source",
    "method", "cache", "device", "device_uuid", "driver",
)  # fmt: skip


def of_store(path: Path) -> Iterator[Recorded]:
    """The rows of the `study.db` at `path`. Raises StorageError where it is no such file."""
    try:
        with contextlib.closing(connect_read_only(path)) as connection:
            rows = connection.execute("SELECT * FROM trials ORDER BY id").fetchall()
        for row in rows:
            yield _of_trial(decode(dict(row)))
    except (sqlite3.Error, KeyError, ValueError, SweeperError) as error:
        raise foreign(path, str(error)) from error


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
        build_s=trial.build_s,
        measure_s=trial.measure_s,
        registers=trial.build.registers if trial.build else None,
        layout=layout_of(trial.shape),
    )


def of_csv(path: Path, text: str) -> Iterator[Recorded]:
    """The rows of a `trials.csv` whose content is `text`. Raises StorageError where it is no such file."""
    try:
        whole = text[: text.rfind("\n") + 1]
        lines = csv.DictReader(io.StringIO(whole, newline=""), strict=True)
        _check_header(path, lines.fieldnames or ())
        if whole != text:
            warnings.warn(f"{path}: the last line was cut off and is left out", stacklevel=2)
        for line in lines:
            yield _of_line(path, lines.line_num, line)
    except csv.Error as error:
        raise foreign(path, str(error)) from error


def _check_header(path: Path, names: Iterable[str]) -> None:
    missing = [name for name in _CSV_COLUMNS if name not in set(names)]
    if missing:
        raise foreign(path, f"it has no column {', '.join(missing[:5])}{' …' * (len(missing) > 5)}")


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
            build_s=_number(line.get("build_s")),
            measure_s=_number(line.get("measure_s")),
            registers=int(line["registers"]) if line.get("registers") else None,
            layout=layout_of(line.get("shape") or ""),
        )
    except (ValueError, TypeError) as error:
        raise foreign(path, f"line {number}: {error}") from error


def _energy(line: Mapping[str, str]) -> Energy | None:
    """Columns that tables of the first version lack."""
    figures = [line.get(f"energy_{name}") or "" for name in ("j", "low_j", "high_j", "w")]
    if not all(figures):
        return None
    joules, low, high, watts = map(float, figures)
    return Energy(joules, low, high, watts, line.get("energy_source") or "")


def _number(text: str | None) -> float | None:
    return float(text) if text else None


def foreign(path: Path, why: str) -> StorageError:
    """The error for a file that is no recorded table."""
    return StorageError(
        f"{path} is not a recorded table: {why}",
        hint="give the trials.csv or the study.db of a run of sweeper, a compact recording, a T4 file, a cache of"
        " Kernel Tuner's, or a CSV with a column time_ms",
    )
