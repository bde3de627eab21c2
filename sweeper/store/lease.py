"""Who works on a study: one process at a time, and one that died does not block the next.

A process of this machine is known by its number and its start time, which no later process has both of. One of
another machine counts as gone when nothing was heard of it for `LEASE_S`: as long as it lives it says so every
`HEARTBEAT_S`, busy or not. On a server all times are the server's, so that clocks may differ.

A process that was stopped for so long that another took its study over stores nothing more of it: every write of a
trial asks first whether the study is still its own.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from sweeper.errors import StorageError
from sweeper.store.attempts import boot
from sweeper.store.schema import studies

__all__ = ["HEARTBEAT_S", "LEASE_S", "Heartbeat", "claim", "refuse_taken", "release", "show_alive", "touch"]

HEARTBEAT_S = 10.0
LEASE_S = 60.0


def claim(connection: sa.Connection, study: str, store: str) -> None:
    """Make this process the owner of `study`, within the caller's transaction.

    Raises StorageError naming a living owner and since when it has the study.
    """
    c = studies.c
    # Of two that claim it at once, the second waits here for the first.
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    connection.execute(insert(studies).values({"name": study}).on_conflict_do_nothing())
    refuse_taken(connection, study, store)
    mine = {
        "owner": _owner(os.getpid()),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
        "seen": _now(connection),
    }
    connection.execute(sa.update(studies).where(c.name == study).values(mine))


def refuse_taken(connection: sa.Connection, study: str, store: str) -> None:
    """Raise StorageError where another living process has `study`; until the transaction ends none can take it."""
    query = sa.select(studies, (_now(connection) - studies.c.seen).label("silent_s"))
    held = (
        connection.execute(query.where(studies.c.name == study).with_for_update(of=studies))
        .mappings()
        .first()
    )
    if held is None or held["owner"] in (None, _owner(os.getpid())) or not _lives(held):
        return
    hint = "wait for it or end it; or use another results_dir"
    if not _is_of_here(held):
        hint += f"; once it is silent for {LEASE_S:.0f} s its work is taken over"
    raise StorageError(
        f"study {study} of {store} is open in process {held['pid']} on {held['host']} since {held['since']}",
        hint=hint,
    )


def touch(connection: sa.Connection, study: str, store: str) -> None:
    """Show other machines that the owner of `study` is at work. Raises StorageError where that is no longer this."""
    if show_alive(connection, [study]):
        return
    taken = connection.execute(sa.select(studies).where(studies.c.name == study)).mappings().first()
    who = f" by process {taken['pid']} on {taken['host']} at {taken['since']}" if taken is not None else ""
    raise StorageError(
        f"study {study} of {store} was taken over{who}",
        hint=f"nothing was heard of this process for {LEASE_S:.0f} s; what it had stored by then is kept",
    )


def show_alive(connection: sa.Connection, names: list[str]) -> int:
    """Note that this process is at work on those of the studies `names` that are its own; gives their number."""
    mine = studies.c.name.in_(names) & (studies.c.owner == _owner(os.getpid()))
    return connection.execute(sa.update(studies).where(mine).values({"seen": _now(connection)})).rowcount


def release(connection: sa.Connection, study: str) -> None:
    """Give `study` up, if this process owns it."""
    mine = (studies.c.name == study) & (studies.c.owner == _owner(os.getpid()))
    connection.execute(sa.update(studies).where(mine).values({"owner": None}))


class Heartbeat:
    """Calls `beat` every `every_s` in a thread of its own, from the first `start` until `stop`."""

    def __init__(self, beat: Callable[[], None], every_s: float = HEARTBEAT_S) -> None:
        self._beat = beat
        self._every_s = every_s
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="store heartbeat", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End it, and wait until a beat that is under way is done."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            # A beat that fails is followed by others; what matters is said by the next write.
            with suppress(StorageError):
                self._beat()


def _now(connection: sa.Connection) -> Any:
    """Seconds since 1970: a server's own, for its clients' clocks may differ."""
    if connection.dialect.name == "postgresql":
        return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)
    return sa.literal(time.time(), sa.Double)


@cache
def _machine() -> str:
    """What no other machine, and no container beside this one, calls itself: the start of the system and the
    name space of its process numbers. Empty where the system does not tell.
    """
    with suppress(OSError):
        return f"{boot()}/{os.readlink('/proc/self/ns/pid')}"
    return boot()


def _owner(pid: int) -> str:
    return f"{socket.gethostname()}:{pid}:{_start_time(pid)}:{_machine()}"


def _start_time(pid: int) -> str:
    """When process `pid` began, in clock ticks since boot; empty where the system does not tell."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The command's name may hold spaces and parentheses; what follows the last one is fixed.
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def _is_of_here(held: sa.RowMapping) -> bool:
    """Whether the owner is or was a process that this one could see. Two machines may have one name."""
    # An older version told less of itself.
    told = str(held["owner"]).split(":", 3)
    machine = told[3] if len(told) == 4 else _machine()
    return bool(held["host"] == socket.gethostname() and machine == _machine())


def _lives(held: sa.RowMapping) -> bool:
    if not _is_of_here(held):
        return held["silent_s"] is not None and float(held["silent_s"]) < LEASE_S
    try:
        os.kill(int(held["pid"]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    now = _owner(int(held["pid"]))
    return bool(held["owner"] in (now, now.removesuffix(f":{_machine()}")))
