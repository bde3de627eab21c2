"""Who works on a study: one process at a time, and one that died does not block the next.

A process of this machine is known by its number and its start time, which no later process has both of.
One of another machine counts as gone when it has stored nothing for `FOREIGN_LEASE_S`.
"""

from __future__ import annotations

import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa

from sweeper.errors import StorageError
from sweeper.store.schema import studies

__all__ = ["FOREIGN_LEASE_S", "claim", "release", "touch"]

FOREIGN_LEASE_S = 3600.0


def claim(connection: sa.Connection, study: str, store: str) -> None:
    """Make this process the owner of `study`, within the caller's transaction.

    Raises StorageError naming a living owner and since when it has the study.
    """
    c = studies.c
    held = connection.execute(sa.select(studies).where(c.name == study).with_for_update()).mappings().first()
    mine = {
        "owner": _owner(os.getpid()),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
        "seen": time.time(),
    }
    if held is None:
        connection.execute(sa.insert(studies), {"name": study, **mine})
        return
    if held["owner"] not in (None, mine["owner"]) and _lives(held):
        raise StorageError(
            f"study {study} of {store} is open in process {held['pid']} on {held['host']}"
            f" since {held['since']}",
            hint="wait for it or end it; or use another results_dir",
        )
    connection.execute(sa.update(studies).where(c.name == study).values(mine))


def touch(connection: sa.Connection, study: str) -> None:
    """Show other machines that the owner of `study` is at work."""
    connection.execute(sa.update(studies).where(studies.c.name == study).values({"seen": time.time()}))


def release(connection: sa.Connection, study: str) -> None:
    """Give `study` up, if this process owns it."""
    mine = (studies.c.name == study) & (studies.c.owner == _owner(os.getpid()))
    connection.execute(sa.update(studies).where(mine).values({"owner": None}))


def _owner(pid: int) -> str:
    return f"{socket.gethostname()}:{pid}:{_start_time(pid)}"


def _start_time(pid: int) -> str:
    """When process `pid` began, in clock ticks since boot; empty where the system does not tell."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The command's name may hold spaces and parentheses; what follows the last one is fixed.
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def _lives(held: sa.RowMapping) -> bool:
    if held["host"] != socket.gethostname():
        return time.time() - float(held["seen"]) < FOREIGN_LEASE_S
    try:
        os.kill(int(held["pid"]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return bool(held["owner"] == _owner(int(held["pid"])))
