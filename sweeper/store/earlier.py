"""Trials of earlier runs, read and never written: what was measured once need not be measured again."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from sweeper.errors import SweeperError
from sweeper.model import Point, Role, Trial
from sweeper.record import decode
from sweeper.sqlite_file import connect_read_only

__all__ = ["MAX_STORES", "EarlierStore", "earlier_stores", "other_stores"]

MAX_STORES = 200
_log = logging.getLogger(__name__)


class _HasPath(Protocol):
    path: Path | None


class EarlierStore:
    """The trials of one context in the store at `path`, as they were when it was opened."""

    def __init__(self, path: Path, context: str) -> None:
        self.path = path
        self._context = context
        with contextlib.closing(connect_read_only(path)) as connection:
            rows = connection.execute("SELECT * FROM trials WHERE context = ? ORDER BY id", (context,))
            self._rows = {(str(row["role"]), str(row["params_key"])): dict(row) for row in rows}

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, context: str, params: Mapping[str, Any], role: Role = Role.CANDIDATE) -> Trial | None:
        """The latest trial of this configuration in this context; None for any other context."""
        row = self._rows.get((role.value, Point.of(params).key)) if context == self._context else None
        if row is None:
            return None
        try:
            return decode(row)
        except (SweeperError, KeyError, ValueError, TypeError) as error:
            _log.debug("%s: row %s is not used: %s", self.path, row.get("id"), error)
            return None


def other_stores(
    runs_root: Path, context: str, *, besides: _HasPath | None = None, limit: int = MAX_STORES
) -> list[EarlierStore]:
    """The stores `runs_root/*/study.db` that hold trials of `context`, the newest first.

    At most `limit` files are looked at; one that cannot be read is passed over.
    """
    skipped = None if besides is None or besides.path is None else besides.path.resolve()
    paths = _newest_first(runs_root)[:limit]
    return earlier_stores([path for path in paths if path.resolve() != skipped], context)


def earlier_stores(paths: Iterable[Path], context: str) -> list[EarlierStore]:
    """The stores at `paths` that hold trials of `context`; one that is not there or cannot be read is passed over."""
    found = []
    for path in paths:
        try:
            earlier = EarlierStore(path, context)
        except (sqlite3.Error, OSError, IndexError) as error:
            _log.debug("%s is not used: %s", path, error)
            continue
        if len(earlier):
            found.append(earlier)
    return found


def _newest_first(runs_root: Path) -> list[Path]:
    dated = []
    with contextlib.suppress(OSError):
        for path in runs_root.glob("*/study.db"):
            with contextlib.suppress(OSError):
                dated.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(dated, reverse=True)]
