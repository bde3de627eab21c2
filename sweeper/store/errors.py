"""What a database refused, said as: which store, what happened, what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy.exc

from sweeper.errors import StorageError

__all__ = ["AlreadyStored", "DamagedStore", "Place", "Unreachable", "corrupt"]

_BY_CODE = (
    ("SQLITE_BUSY", "is locked by another process", "end the process that holds it, or wait; then run again"),
    (
        "SQLITE_FULL",
        "cannot grow: the disk is full",
        "free some space; then run again: what is stored is kept",
    ),
    ("SQLITE_READONLY", "is read-only", "choose a folder that can be written, with results_dir=FOLDER"),
    ("SQLITE_CANTOPEN", "cannot be opened", "choose a folder that can be written, with results_dir=FOLDER"),
    (
        "SQLITE_IOERR",
        "cannot be read or written: the disk is full, faulty or limited (ulimit -f)",
        "see to the disk; then run again: what is stored is kept",
    ),
)
# Of a server, by the beginning of SQLSTATE: https://www.postgresql.org/docs/15/errcodes-appendix.html
_BY_STATE = (
    (
        "53100",
        "cannot grow: the server's disk is full",
        "free some space; then run again: what is stored is kept",
    ),
    (
        "28",
        "lets nobody in by this name and password",
        "see to the user and password of the address, or ~/.pgpass",
    ),
    ("3D", "is no database of this server", "make it with createdb, or see to the address"),
    ("25006", "is read-only", "name the server that writes, not its standby"),
    ("42501", "refuses this user", "have its owner grant the user CREATE and USAGE on its schema"),
)
# Lost or not yet there, a peer stopped in the middle of a write, or two writes that met: another try may succeed.
_PASSING = ("08", "57P", "53300", "40001", "40P01", "55P03", "25P03", "57014")
_RETURN = (
    "see that it runs and that its address is right; then run again: nothing stored is lost or measured twice"
)


@dataclass(frozen=True, slots=True)
class Place:
    """A store's name in messages, and the secrets that must not appear in any."""

    label: str
    secrets: tuple[str, ...] = ()

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Turn errors of the database into StorageError."""
        try:
            yield
        except sqlalchemy.exc.IntegrityError:
            raise AlreadyStored(
                f"{self.label} holds this already",
                hint="another process wrote it at the same time; run again",
            ) from None
        except (sqlalchemy.exc.SQLAlchemyError, sqlite3.Error) as error:
            # Not chained: a driver's message may hold the whole address, its password included.
            raise self._said(error) from None
        except (UnicodeDecodeError, OverflowError) as error:
            # What should be text, or a number that fits its column, is neither.
            raise corrupt(self.label, str(error)) from None

    def _said(self, error: Exception) -> StorageError:
        original = getattr(error, "orig", None) or error
        code = str(getattr(original, "sqlite_errorname", ""))
        if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return corrupt(self.label, str(original))
        for prefix, what, hint in _BY_CODE:
            if code.startswith(prefix):
                return StorageError(f"{self.label} {what}", hint=hint)
        text = str(original).strip() or type(original).__name__
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return self._said_of_server(error, original, text) or StorageError(f"{self.label}: {text}")

    def _said_of_server(self, error: Exception, original: BaseException, text: str) -> StorageError | None:
        """The error for what a server's driver says; None for what is none of those told apart here."""
        state = str(getattr(original, "sqlstate", None) or getattr(original, "pgcode", None) or "")
        for prefix, what, hint in _BY_STATE:
            if state.startswith(prefix):
                return StorageError(f"{self.label} {what}: {_first_line(text)}", hint=hint)
        # Who could not connect at all has no state.
        refused = isinstance(error, sqlalchemy.exc.OperationalError | sqlalchemy.exc.InterfaceError)
        refused = refused and not state and not isinstance(original, sqlite3.Error)
        if refused or state.startswith(_PASSING) or getattr(error, "connection_invalidated", False):
            return Unreachable(f"{self.label} cannot be reached: {_first_line(text)}", hint=_RETURN)
        return None


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""


class Unreachable(StorageError):
    """A server was lost or does not answer now; what was being written may be stored or not."""


class AlreadyStored(StorageError):
    """A row that can be there once is there."""


class DamagedStore(StorageError):
    """A store's file is not a whole database; it is refused, never changed."""


def corrupt(label: str, reason: str) -> DamagedStore:
    """The error for a damaged store, with the way to what is left of it."""
    return DamagedStore(
        f"{label} is damaged ({reason})",
        hint=f"python -m sweeper.store.recovery {label} copies what can be read into a new store beside it;"
        " the damaged file is not changed",
    )
