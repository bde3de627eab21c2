"""A store that is read and never written, not even to bring it up to date: a file, or what a server holds."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa

from sweeper.errors import StorageError
from sweeper.model import Confirmed
from sweeper.sqlite_file import connect_read_only
from sweeper.store import schema
from sweeper.store.engine import address
from sweeper.store.errors import Place, corrupt
from sweeper.store.server import place_of, read_only_engine
from sweeper.wire import WireError, from_wire

__all__ = ["Reading"]

Row = dict[str, Any]

_ROWS_AT_ONCE = 2000


class Reading:
    """What the store at `where` holds, a path or a URL. A store that a run is writing to may be read as well.

    `label` is its name in messages. Raises StorageError where it is no store or cannot be read; ConfigError and
    SetupError as `Store` does.
    """

    def __init__(self, where: Path | str) -> None:
        self.path, url = address(where)
        self._held = ExitStack()
        if self.path is None:
            self._place = place_of(url)
            engine = read_only_engine(url)
        else:
            self._place = Place(str(self.path))
            path = self._held.enter_context(_undisturbed(self.path))
            engine = sa.create_engine("sqlite://", creator=lambda: _connected(path), poolclass=sa.NullPool)
        self.label = self._place.label
        try:
            with self._place.guard():
                self._held.callback(engine.dispose)
                self._connection = self._held.enter_context(engine.connect())
                self._tables = set(sa.inspect(self._connection).get_table_names())
                if not {schema.meta.name, schema.trials.name} <= self._tables:
                    raise StorageError(f"{self.label} is no store of results", hint="name a study.db")
                schema.version_of(self._connection, self._place)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of it; may be called twice."""
        self._held.close()

    def studies(self) -> Iterator[tuple[str, list[Row]]]:
        """Each study with its trials as rows by column name, as stored and in the order they were stored."""
        t = schema.trials.c
        query = sa.select(schema.trials).order_by(t.study, t.id)
        with self._place.guard():
            found = self._connection.execution_options(stream_results=True, yield_per=_ROWS_AT_ONCE)
            rows = (dict(row) for row in found.execute(query).mappings())
            for study, own in groupby(rows, key=lambda row: str(row["study"])):
                yield study, list(own)

    def confirmed(self) -> list[Confirmed]:
        """All that was timed in turns, in the order it was stored."""
        if schema.confirmations.name not in self._tables:
            return []
        records = self._records(sa.select(schema.confirmations.c.record).order_by(schema.confirmations.c.id))
        try:
            return [from_wire(Confirmed, record) for record in records]
        except (WireError, ValueError, TypeError) as error:
            raise corrupt(self.label, f"a row is no confirmation: {error}") from error

    def runs(self) -> list[dict[str, Any]]:
        """The provenance of every run, oldest first."""
        return self._records(
            sa.select(schema.runs.c.record).order_by(schema.runs.c.started, schema.runs.c.id)
        )

    def _records(self, query: sa.Select[Any]) -> list[dict[str, Any]]:
        with self._place.guard():
            found = self._connection.scalars(query).all()
        try:
            return [dict(json.loads(record)) for record in found]
        except (ValueError, TypeError) as error:
            raise corrupt(self.label, f"a record is no JSON: {error}") from error


class _undisturbed:  # noqa: N801 - used as a function
    """The file to open in place of `path`: itself, or a copy where opening it would leave something beside it.

    A log that no process has open is one that a killed run left. SQLite would make its shared memory anew.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Path:
        log, shared = (self._path.with_name(self._path.name + suffix) for suffix in ("-wal", "-shm"))
        try:
            if not self._path.is_file():
                raise StorageError(f"{self._path}: no such file")
            if not log.exists() or not log.stat().st_size or shared.exists():
                return self._path
            self._folder = tempfile.TemporaryDirectory(prefix="sweeper-")
            for one in (self._path, log):
                shutil.copyfile(one, Path(self._folder.name) / one.name)
        except OSError as error:
            raise StorageError(f"{self._path} cannot be read: {error.strerror or error}") from None
        return Path(self._folder.name) / self._path.name

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()


def _connected(path: Path) -> sqlite3.Connection:
    connection = connect_read_only(path)
    connection.row_factory = None
    return connection
