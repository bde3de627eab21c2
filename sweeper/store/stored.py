"""All that a store holds, read and never written: published results stay the bytes they are."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from sweeper.errors import StorageError, SweeperError
from sweeper.model import Confirmed, Trial
from sweeper.record import decode
from sweeper.sqlite_file import connect_read_only
from sweeper.wire import from_wire

__all__ = ["Stored", "read_store"]


class Stored(NamedTuple):
    """A store's trials and confirmations in the order they were stored, and the records of its runs."""

    trials: list[Trial]
    confirmed: list[Confirmed]
    runs: list[dict[str, Any]]


def read_store(path: Path) -> Stored:
    """What the `study.db` at `path` holds, of this or any earlier version; nothing is repaired or brought up to date.

    Raises StorageError where it is no such file or is damaged.
    """
    try:
        with contextlib.closing(connect_read_only(path)) as connection:
            trials = [decode(dict(row)) for row in connection.execute("SELECT * FROM trials ORDER BY id")]
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
            finals = _records(connection, tables, "confirmations", "id")
            runs = _records(connection, tables, "runs", "started, id")
        return Stored(trials, [from_wire(Confirmed, record) for record in finals], runs)
    except (OSError, sqlite3.Error, KeyError, IndexError, ValueError, TypeError, SweeperError) as error:
        raise StorageError(
            f"{path} is no store of results: {error}",
            hint=f"if it was damaged, `python -m sweeper.store.recovery {path.name}` copies what can be read",
        ) from error


def _records(
    connection: sqlite3.Connection, tables: set[str], table: str, order: str
) -> list[dict[str, Any]]:
    """The records of `table`, which versions before it have not. Its name and `order` are this module's own."""
    if table not in tables:
        return []
    query = f"SELECT record FROM {table} ORDER BY {order}"  # noqa: S608
    return [json.loads(row[0]) for row in connection.execute(query)]
