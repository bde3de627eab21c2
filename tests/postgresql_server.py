"""A PostgreSQL server for as long as it is needed: a cluster of its own, reached by a socket in its own folder.

Nothing of it is in the way of another server, and nothing is left of it. The administrator may not run one, so
there it runs as `nobody`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Place", "Server", "binaries", "server"]

_START_S = 60


def binaries() -> Path | None:
    """The folder of `initdb` and `postgres`: on the path, or where Debian has them; None where there are none."""
    found = shutil.which("initdb")
    if found is not None and shutil.which("postgres") is not None:
        return Path(found).parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return installed[-1].parent if installed else None


class Place:
    """A server at `address`, the URL of one of its databases; who may use it may make others."""

    def __init__(self, address: str) -> None:
        self.address = address

    def url(self, database: str = "postgres") -> str:
        import sqlalchemy as sa

        return sa.make_url(self.address).set(database=database).render_as_string(hide_password=False)

    def execute(self, statement: str, database: str = "postgres", *values: Any) -> list[Any]:
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def database(self, name: str) -> str:
        """The URL of the database `name`, made if it is missing."""
        if (name,) not in self.execute("SELECT datname::text FROM pg_database"):
            self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def schema(self, name: str) -> str:
        """A URL under which the server seems empty: a name space of one database, quicker made than a database."""
        import sqlalchemy as sa

        self.execute(f"CREATE SCHEMA IF NOT EXISTS {name}")
        return (
            sa.make_url(self.url())
            .update_query_dict({"options": f"-csearch_path={name}"})
            .render_as_string(hide_password=False)
        )

    def cut_off(self, database: str) -> None:
        """End every connection to `database`."""
        ours = self.execute("SELECT pid FROM pg_stat_activity WHERE datname = %s", "postgres", database)
        for (pid,) in ours:
            self.execute(f"SELECT pg_terminate_backend({pid})")


class Server(Place):
    """A cluster in `folder` that can be stopped and started again."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        super().__init__(f"postgresql://sweeper@/postgres?host={folder}")
        found = binaries()
        assert found is not None, "there is no initdb"
        self._binaries, self.folder, self._durable = found, folder, durable
        self._process: subprocess.Popen[bytes] | None = None
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        subprocess.run(
            [
                found / "initdb",
                "-D",
                folder / "data",
                "-U",
                "sweeper",
                "--auth=trust",
                "-E",
                "UTF8",
                "--locale=C",
            ]
            + ([] if durable else ["--no-sync"]),
            check=True,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            **self._as,
        )

    def start(self) -> None:
        options = [f"unix_socket_directories={self.folder}", "listen_addresses=", "max_connections=60"]
        if not self._durable:
            options += ["fsync=off", "full_page_writes=off"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self.folder / "data"] + [f"-c{one}" for one in options],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                **self._as,
            )
        deadline = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(Exception):
                self.execute("SELECT 1")
                return
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise AssertionError((self.folder / "log").read_text(errors="replace"))
            time.sleep(0.05)

    def stop(self, *, at_once: bool = False) -> None:
        """As `pg_ctl stop -m fast`: connections are cut off, and what was committed is kept; or `-m immediate`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
            self._process.wait(timeout=_START_S)
            self._process = None


@contextmanager
def server(*, durable: bool = False) -> Iterator[Server]:
    """A server of its own; `durable` as one in earnest, with every commit synced to the disk."""
    folder = Path(tempfile.mkdtemp(prefix="sweeper-pg-", dir=Path(tempfile.gettempdir()).resolve()))
    try:
        made = Server(folder, durable=durable)
        made.start()
        try:
            yield made
        finally:
            made.stop(at_once=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
