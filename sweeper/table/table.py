"""Trials as one pandas table, and that table as a CSV file.

The schema is fixed (`result_columns`), rows stand in study and trial order, and the bytes of the file
follow from the trials alone: numbers by their shortest form that reads back equal, `.` decimals in any
locale, UTF-8, `\\n` line ends, blank where there is no value. Text is written as it is: a spreadsheet
that takes cells beginning with `=` for formulas should import it as text.

What a table says in short (`best`, `best_per_shape`, `status_counts`) is in `ranking`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.atomic import atomic_write, storage_error
from sweeper.errors import StorageError
from sweeper.model import Role, Trial
from sweeper.table.columns import COLUMNS, LATER, NAMES, PARAM_PREFIX, Column
from sweeper.table.ranking import best, best_per_shape, rankable, status_counts
from sweeper.table.row import Cell, library_times, row

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "COLUMNS",
    "Column",
    "best",
    "best_per_shape",
    "csv_bytes",
    "frame",
    "rankable",
    "read_csv",
    "status_counts",
    "write_csv",
]

_PARAMS_AFTER = NAMES.index("k") + 1
_TYPES = {column.name: column.dtype for column in COLUMNS}


def frame(trials: Iterable[Trial]) -> pd.DataFrame:
    """One row a trial: studies in the order they first appear, then by number.

    Columns are those of `COLUMNS`, and `param_NAME` for every parameter of a candidate.
    """
    given = list(trials)
    order = {study: place for place, study in enumerate(dict.fromkeys(t.study for t in given))}
    given.sort(key=lambda t: (order[t.study], t.number))
    library = library_times(given)
    rows = [row(trial, library) for trial in given]
    params = [dict(trial.params) if trial.role is Role.CANDIDATE else {} for trial in given]
    return _assembled(rows, params)


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write `table` to `path`, durably and as a whole: a reader sees the old file or the new one.

    Raises StorageError, with the old file untouched, where it cannot be written.
    """
    atomic_write(path, csv_bytes(table))


def csv_bytes(table: pd.DataFrame) -> bytes:
    """`table` as the bytes of a CSV file."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    columns = [[_text(value) for value in table[name].tolist()] for name in table.columns]
    writer.writerows(zip(*columns, strict=True))
    return out.getvalue().encode("utf-8", "backslashreplace")


def read_csv(path: Path) -> pd.DataFrame:
    """The table that `write_csv` wrote, with the same types.

    A last line that was cut off is left out, and a warning says so; columns that its version did not have yet
    are blank. Raises StorageError for a file that
    cannot be read, is not such a table or was changed by hand into something else.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise storage_error(path, error, doing="read") from error
    except UnicodeDecodeError as error:
        raise _foreign(path, "it is no UTF-8 text") from error
    whole = text[: text.rfind("\n") + 1]
    lines = csv.reader(io.StringIO(whole, newline=""), strict=True)
    try:
        header = next(lines, [])
        missing = [name for name in NAMES if name not in header and name not in LATER]
        if missing:
            raise _foreign(path, f"it has no column {', '.join(missing[:5])}{' …' * (len(missing) > 5)}")
        if whole != text:
            warnings.warn(f"{path}: the last line was cut off and is left out", stacklevel=2)
        rows = [_cells(path, line, header) for line in lines]
    except csv.Error as error:
        raise _foreign(path, str(error)) from error
    return _assembled(rows, [_params(path, cells) for cells in rows])


def _assembled(rows: Sequence[Mapping[str, Any]], params: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    names = list(dict.fromkeys(name for point in params for name in point))
    data = {name: pd.array([r[name] for r in rows], dtype=_TYPES[name]) for name in NAMES}  # type: ignore[call-overload]
    levels = {PARAM_PREFIX + name: _levels([point.get(name) for point in params]) for name in names}
    order = [*NAMES[:_PARAMS_AFTER], *levels, *NAMES[_PARAMS_AFTER:]]
    return pd.DataFrame({**data, **levels}, columns=order)


def _levels(values: list[Any]) -> Any:
    """A parameter's column: of the one type its levels have, else text."""
    import pandas as pd

    kinds = {type(v) for v in values if v is not None}
    if kinds == {int} and all(abs(v) < 2**63 for v in values if v is not None):
        return pd.array(values, dtype="Int64")
    if kinds == {float}:
        return pd.array(values, dtype="Float64")
    if kinds == {bool}:
        return pd.array(values, dtype="boolean")
    return pd.array(["" if v is None else _text(v) for v in values], dtype="string")


def _text(value: Any) -> str:
    """A cell: never through the locale."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(float(value))
    return str(value) if isinstance(value, str | int) else ""


def _cells(path: Path, line: list[str], header: list[str]) -> dict[str, Cell]:
    if len(line) != len(header):
        raise _foreign(path, f"a row has {len(line)} cells where the header has {len(header)}")
    given = dict(zip(header, line, strict=True))
    try:
        return {name: _read(given.get(name, ""), _TYPES[name]) for name in NAMES}
    except ValueError as error:
        raise _foreign(path, f"row {given['study']} {given['trial']}: {error}") from error


def _read(text: str, dtype: str) -> Cell:
    if dtype == "string":
        return text
    if not text:
        return None
    return int(text) if dtype == "Int64" else float(text)


def _params(path: Path, cells: Mapping[str, Cell]) -> dict[str, Any]:
    """A candidate's parameters with their types, which the columns alone do not tell."""
    if cells["role"] != Role.CANDIDATE.value:
        return {}
    try:
        return dict(json.loads(str(cells["params"])))
    except (ValueError, TypeError) as error:
        raise _foreign(path, f"row {cells['study']} {cells['trial']}: params: {error}") from error


def _foreign(path: Path, why: str) -> StorageError:
    return StorageError(
        f"{path} is not a results table of sweeper: {why}",
        hint="give a trials.csv, or the study.db of a run, from which the table can be exported again",
    )
