"""Connections to a store: SQLite set up for durability and several writers; what is a file and what a server."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError

from sweeper.errors import ConfigError
from sweeper.store.errors import Place

__all__ = ["address", "sqlite_engine", "transaction"]


def address(where: Path | str) -> tuple[Path | None, sa.URL]:
    """The file of a SQLite store, or None and the URL of a server. Raises ConfigError."""
    if isinstance(where, Path) or "://" not in where:
        return Path(where).absolute(), sa.URL.create("sqlite")
    try:
        url = sa.make_url(where)
    except (ArgumentError, ValueError):
        # The address itself is not shown: it may hold a password.
        raise ConfigError(
            "the storage URL cannot be read", hint="write postgresql://USER@HOST/DATABASE"
        ) from None
    if url.get_backend_name() != "sqlite":
        return None, url
    if not url.database or url.database == ":memory:":
        raise ConfigError("a store is a file: sqlite:// needs a path", hint="write sqlite:///FOLDER/study.db")
    return Path(url.database).absolute(), url


def sqlite_engine(path: Path, *, busy_s: float, pragmas: Mapping[str, int | str]) -> sa.Engine:
    """Connections to a SQLite file; a commit is on the disk, and a lock is waited for `busy_s` at most."""

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
        try:
            _set_up(connection, busy_s, pragmas)
        except BaseException:
            connection.close()
            raise
        return connection

    engine = sa.create_engine("sqlite://", creator=connect, poolclass=sa.QueuePool)

    # The driver's own handling opens transactions late, which lets two writers meet half way.
    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get("write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


@contextmanager
def transaction(engine: sa.Engine, place: Place) -> Iterator[sa.Connection]:
    """A transaction that writes: all of it is stored, or an error is raised and nothing is."""
    with (
        place.guard(),
        engine.connect() as plain,
        plain.execution_options(write=True) as connection,
        connection.begin(),
    ):
        yield connection


def _set_up(connection: sqlite3.Connection, busy_s: float, pragmas: Mapping[str, int | str]) -> None:
    connection.execute("PRAGMA synchronous=FULL")
    for name, value in pragmas.items():
        connection.execute(f"PRAGMA {name}={value}")
    deadline = time.monotonic() + busy_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").fetchall()
            return
        except sqlite3.OperationalError as error:
            # Changing the mode does not wait for a lock as other statements do.
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
