"""What a database refused, said as: which store, what happened, what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy.exc

from sweeper.errors import StorageError

__all__ = ["AlreadyStored", "DamagedStore", "Place", "corrupt"]

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


@dataclass(frozen=True, slots=True)
class Place:
    """A store's name in messages, and the secret that must not appear in any."""

    label: str
    secret: str | None = None

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
        if self.secret:
            text = text.replace(self.secret, "***")
        return StorageError(f"{self.label}: {text}")


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
