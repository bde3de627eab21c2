"""Results folders and tables as entries: `study.db`, `trials.csv`, `confirmed.csv`, and tables of shapes.

A table of shapes (`bench/bench_shapes.py` writes them) has a row for a shape, or for a shape and rung, with the
columns shape, kernel, params, timed and time_ms.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from sweeper.dispatch.entry import Entry
from sweeper.dtypes import dtype
from sweeper.errors import ConfigError, StorageError
from sweeper.kernel.layout import layout_of
from sweeper.kernel.sizes import parse_shape
from sweeper.model import Role, Status, TimeSource
from sweeper.recording.shapes import SHAPES, is_shapes
from sweeper.recording.trials import foreign
from sweeper.store.stored import read_store
from sweeper.table import csv_bytes, frame
from sweeper.table.confirmed import confirmed_frame

__all__ = ["read_entries", "tables_of_shapes"]

Row = Mapping[str, str]

_TRIALS = {"study", "role", "status", "params", "time_ms", "time_source", "dims"}
_USUAL_LAYOUT = "nn"
_LIBRARIES = ("cublas", "cublaslt")


def read_entries(paths: Sequence[Path | str]) -> list[Entry]:
    """All that was measured right and cold in those folders (and the folders in them) and files.

    Raises StorageError for what is not there or no table of ours, and where nothing was found.
    """
    entries: list[Entry] = []
    for path in map(Path, paths):
        if not path.exists():
            raise StorageError(f"{path}: no such file or folder", hint="give a results folder or a table")
        found = list(_of_folder(path) if path.is_dir() else _of_file(path))
        if not found and not path.is_dir():
            raise StorageError(
                f"{path} has no configuration that was measured right", hint="give a table of measured rows"
            )
        entries += found
    if not entries:
        where = ", ".join(map(str, paths)) or "nowhere"
        raise StorageError(
            f"no measured configuration in {where}",
            hint="give folders with study.db or trials.csv, or tables that bench/bench_shapes.py wrote",
        )
    return entries


def tables_of_shapes(path: Path) -> list[Path]:
    """The tables of shapes at `path`: itself, or those in that folder and in the folders in it, sorted."""
    if not path.is_dir():
        return [path] if path.suffix == ".csv" and _has_shapes(path) else []
    inner = [path, *sorted(one for one in path.iterdir() if one.is_dir())]
    return [table for folder in inner for table in sorted(folder.glob("*.csv")) if _has_shapes(table)]


def _has_shapes(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8") as file:
            return is_shapes(file.readline())
    except (OSError, UnicodeDecodeError):
        return False


def _of_folder(folder: Path) -> Iterator[Entry]:
    for inner in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        if (inner / "trials.csv").is_file():
            confirmed = inner / "confirmed.csv"
            yield from _of_run(
                _rows(inner / "trials.csv"), _rows(confirmed) if confirmed.is_file() else [], str(inner)
            )
        elif (inner / "study.db").is_file():
            yield from _of_store(inner / "study.db")
        for path in sorted(inner.glob("*.csv")):
            if path.name not in ("trials.csv", "confirmed.csv", "best.csv"):
                rows = _rows(path)
                if rows and set(rows[0]) >= SHAPES:
                    yield from _of_shapes(rows, str(path))


def _of_file(path: Path) -> Iterator[Entry]:
    if path.suffix == ".db":
        yield from _of_store(path)
        return
    rows = _rows(path)
    if rows and set(rows[0]) >= SHAPES:
        yield from _of_shapes(rows, str(path))
    elif rows and set(rows[0]) >= _TRIALS:
        beside = path.with_name("confirmed.csv")
        yield from _of_run(rows, _rows(beside) if beside.is_file() else [], str(path))
    else:
        raise StorageError(
            f"{path} is no table of configurations: it lacks the columns of trials.csv and of a table of shapes",
            hint="give a results folder, its trials.csv, or NAME.csv of bench/bench_shapes.py",
        )


def _of_store(path: Path) -> Iterator[Entry]:
    stored = read_store(path)
    finals = confirmed_frame(stored.confirmed).to_csv(index=False)
    yield from _of_run(_parsed(csv_bytes(frame(stored.trials)).decode()), _parsed(finals), str(path))


def _rows(path: Path) -> list[Row]:
    try:
        return _parsed(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StorageError(f"{path} cannot be read: {error}") from None


def _parsed(text: str) -> list[Row]:
    return list(csv.DictReader(io.StringIO(text)))


# --- One run: its trials, and what was confirmed ------------------------------------------------------


def _of_run(trials: Iterable[Row], confirmed: Iterable[Row], table: str) -> Iterator[Entry]:
    problems: dict[str, Row] = {}
    libraries: dict[str, tuple[float, str]] = {}
    valid: list[Row] = []
    for row in trials:
        ok = row["status"] == Status.OK.value and row["time_ms"]
        if not ok or row["time_source"] != TimeSource.MEASURED.value or row.get("cache") == "warm":
            continue
        if row["role"] == Role.BASELINE.value:
            best = libraries.get(row["study"], (float("inf"), ""))
            libraries[row["study"]] = min(best, (float(row["time_ms"]), row["kernel"]))
        else:
            problems[row["study"]] = row
            valid.append(row)
    for row in valid:
        time_ms, library = float(row["time_ms"]), libraries.get(row["study"])
        yield _entry(
            row, row, table, confirmed=False, time_ms=time_ms,
            ends=(row.get("time_low_ms"), row.get("time_high_ms")),
            ratio=library[0] / time_ms if library else None, library=library[1] if library else "",
        )  # fmt: skip
    for row in confirmed:
        problem = problems.get(row["study"])
        if problem is None or row["role"] == Role.BASELINE.value or row.get("reason") or not row["median_ms"]:
            continue
        if row.get("cache") != "warm":
            ratio, name = _confirmed_ratio(row)
            yield _entry(
                problem, row, table, confirmed=True, time_ms=float(row["median_ms"]),
                ends=(row.get("low_ms"), row.get("high_ms")), ratio=ratio, library=name,
            )  # fmt: skip


def _confirmed_ratio(row: Row) -> tuple[float | None, str]:
    """The better library's time ÷ the row's, and the library's name."""
    ratios = [(float(row[f"vs_{name}_ratio"]), name) for name in _LIBRARIES if row.get(f"vs_{name}_ratio")]
    if not ratios:
        return None, ""
    ratio, name = max(ratios)
    return 1 / ratio, name


def _entry(
    problem: Row,
    row: Row,
    table: str,
    *,
    confirmed: bool,
    time_ms: float,
    ends: tuple[str | None, str | None],
    ratio: float | None,
    library: str,
) -> Entry:
    low, high = (float(end) if end else None for end in ends)
    return Entry(
        kernel=problem["kernel"],
        dtype=dtype(problem["dtype"], where=table).name,
        layout=layout_of(problem["shape"]) or _USUAL_LAYOUT,
        dims=_json(problem["dims"], table),
        params=_json(row["params"], table),
        time_ms=time_ms,
        confirmed=confirmed,
        device=problem["device"],
        time_low_ms=low,
        time_high_ms=high,
        ratio=ratio,
        library=library,
        table=table,
    )


# --- A table of shapes --------------------------------------------------------------------------------


def _of_shapes(rows: Iterable[Row], table: str) -> Iterator[Entry]:
    for row in rows:
        if not row["params"] or not row["time_ms"]:
            continue
        try:
            dims, layout = parse_shape(row["shape"])
        except ConfigError as error:
            raise foreign(Path(table), error.message) from None
        low, high, ratio = (
            float(row[name]) if row.get(name) else None for name in ("time_low_ms", "time_high_ms", "ratio")
        )
        yield Entry(
            kernel=row["kernel"],
            dtype=dtype(row.get("dtype") or "float32", where=table).name,
            layout=layout or _USUAL_LAYOUT,
            dims=dims,
            params=_json(row["params"], table),
            time_ms=float(row["time_ms"]),
            confirmed=row["timed"] == "in turns",
            device=row.get("device", ""),
            time_low_ms=low,
            time_high_ms=high,
            ratio=ratio,
            library=row.get("better_library", ""),
            table=table,
            verdict=row.get("verdict") or "",
        )


def _json(text: str, table: str) -> dict[str, int]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise StorageError(f"{table}: {text[:60]!r} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise StorageError(f"{table}: {text[:60]!r} is no JSON object")
    return found
