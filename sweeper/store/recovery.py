"""Copy what can still be read of a damaged store into a new one: `python -m sweeper.store.recovery study.db`.

The damaged file is only read.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from sweeper.errors import StorageError, SweeperError
from sweeper.record import decode
from sweeper.sqlite_file import connect_read_only
from sweeper.store.schema import ROW_END, confirmations, create, runs, superseded, trials

__all__ = ["main", "recover", "replace_damaged"]


def recover(damaged: Path, new: Path) -> int:
    """Write the readable rows of `damaged` to the new store `new`; returns how many trials there are.

    Raises StorageError where `new` exists and where nothing of `damaged` can be read.
    """
    if new.exists():
        raise StorageError(f"{new} exists already", hint="move it away first")
    kept = (runs, trials, confirmations, superseded)
    found = {table.name: _readable(damaged, table) for table in kept}
    if not any(found.values()):
        raise StorageError(
            f"nothing of {damaged} can be read", hint="restore it from a copy, or move it away and start anew"
        )
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(new)), poolclass=sa.NullPool)
    try:
        with engine.begin() as connection:
            create(connection)
            for table in kept:
                if found[table.name]:
                    connection.execute(sa.insert(table), found[table.name])
    finally:
        engine.dispose()
    return len(found[trials.name])


def replace_damaged(path: Path) -> tuple[int, Path]:
    """Put a recovered copy in the place of `path`, which keeps its content under another name.

    Returns the number of trials recovered and that name.
    """
    new = path.with_name(f"{path.name}.recovered-{os.getpid()}")
    count = recover(path, new)
    kept = next(
        name
        for n in range(1, 1_000_000)
        if not (name := path.with_name(f"{path.stem}.damaged-{n}{path.suffix}")).exists()
    )
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{kept}{suffix}")
    os.replace(path, kept)
    os.replace(new, path)
    return count, kept


def _readable(damaged: Path, table: sa.Table) -> list[dict[str, Any]]:
    """Rows from the front up to the damage, then from the back down to it."""
    key = next(iter(table.primary_key.columns)).name
    rows: dict[Any, dict[str, Any]] = {}
    for order in ("ASC", "DESC"):
        query = f"SELECT * FROM {table.name} NOT INDEXED ORDER BY rowid {order}"  # noqa: S608 - our own names
        with (
            contextlib.suppress(sqlite3.Error, UnicodeDecodeError, OverflowError),
            contextlib.closing(connect_read_only(damaged)) as connection,
        ):
            # With this SQLite also reads a file that is shorter than its header says.
            connection.execute("PRAGMA writable_schema=ON")
            for row in connection.execute(query):
                if row[key] in rows:
                    break
                rows[row[key]] = {column.name: row[column.name] for column in table.columns}
    return [rows[k] for k in sorted(rows) if _whole(rows[k])]


def _whole(row: Mapping[str, Any]) -> bool:
    """Whether nothing of a row was lost: a trial's, a run's or a confirmation's."""
    try:
        if "row_end" in row:
            decode(row)
            return bool(row["row_end"] == ROW_END)
        json.loads(row["record"])
    except (SweeperError, ValueError, TypeError):
        return False
    return True


def main(arguments: Sequence[str]) -> int:
    """The command line: one argument, the damaged store."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m sweeper.store.recovery STORE", file=sys.stderr)  # noqa: T201
        return 2
    damaged = Path(arguments[0])
    new = damaged.with_name(f"{damaged.stem}.recovered{damaged.suffix}")
    try:
        count = recover(damaged, new)
    except SweeperError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    print(f"{count} trials of {damaged} are in {new}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
