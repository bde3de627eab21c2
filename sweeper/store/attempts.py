"""Configurations that were begun and never finished, though the machine was started anew since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from sweeper.model import Point
from sweeper.store.schema import attempts

__all__ = ["begun_in_vain", "boot", "forget_begun", "note_begun"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def boot() -> str:
    """Names the machine's present run, from its start to its end; empty where the system does not tell."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def note_begun(connection: sa.Connection, context: str, begun: Sequence[Mapping[str, Any]]) -> None:
    """Note what is about to run, within the caller's transaction. Without a name for the boot nothing is."""
    if not begun or not boot():
        return
    keys = sorted({Point.of(params).key for params in begun})
    rows = [{"context": context, "params_key": key, "boot": boot()} for key in keys]
    # Another process may have begun the same meanwhile, for a study of another name.
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    connection.execute(insert(attempts).on_conflict_do_nothing(), rows)


def begun_in_vain(connection: sa.Connection, context: str) -> dict[str, int]:
    """In how many earlier runs of the machine each configuration was begun and not finished."""
    c = attempts.c
    query = (
        sa.select(c.params_key, sa.func.count())
        .where(c.context == context, c.boot != boot())
        .group_by(c.params_key)
    )
    return {str(key): int(count) for key, count in connection.execute(query)}


def forget_begun(connection: sa.Connection, context: str, params_key: str) -> None:
    """It is finished."""
    c = attempts.c
    connection.execute(sa.delete(attempts).where(c.context == context, c.params_key == params_key))
