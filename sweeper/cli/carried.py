"""A job's store where its results folder is on a network file system: it lies on the host's own disk while the job
runs, and goes back whole.

SQLite's write-ahead log is not safe on a network folder; a file that takes its name in one rename is. So the store
is copied to scratch, worked on there, and copied back every `PERIOD_S` and at the end. A job that is killed loses at
most what it measured since then, and measures it once more.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
import threading
from contextlib import closing
from pathlib import Path

from sweeper.atomic import atomic_write, storage_error
from sweeper.cli.merging import merge
from sweeper.cli.scratch import scratch
from sweeper.errors import StorageError
from sweeper.store import Store

__all__ = ["PERIOD_S", "CarriedStore"]

PERIOD_S = 20.0
_Stamp = tuple[int, int, int] | None


class CarriedStore(Store):
    """The store whose place is `home`, worked on in a folder of its own in `scratch()`. One process has it at a time.

    Raises StorageError where it cannot be opened, and on closing where it cannot be put back; it is then kept where
    it was worked on.
    """

    def __init__(self, home: Path, *, period_s: float = PERIOD_S) -> None:
        self.home = home
        self._work = Path(tempfile.mkdtemp(prefix="sweeper-store-", dir=scratch()))
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        try:
            self._seen = self._fetch(self._work / "study.db")
            super().__init__(self._work / "study.db")
        except BaseException:
            shutil.rmtree(self._work, ignore_errors=True)
            raise
        self._thread = threading.Thread(
            target=self._carry_now_and_then, args=(period_s,), name="store carrier", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Put the store back in its place, whole, and end. Raises StorageError."""
        if self._over.is_set():
            return
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if _stamp(self.home) != self._seen:
            self._take_in()
        super().close()
        try:
            self._carry()
        except StorageError as error:
            raise StorageError(
                error.message, hint=f"what was measured is whole in {self._work / 'study.db'}"
            ) from None
        shutil.rmtree(self._work, ignore_errors=True)

    def _fetch(self, to: Path) -> _Stamp:
        stamp = _stamp(self.home)
        try:
            if stamp is not None:
                shutil.copyfile(self.home, to)
        except OSError as error:
            raise storage_error(self.home, error, doing="read") from error
        return stamp

    def _take_in(self) -> None:
        """Add what another process has put in the store's place meanwhile: nothing measured is overwritten."""
        other = self._work / "other.db"
        self._seen = self._fetch(other)
        if self._seen is not None:
            merge([other], self)

    def _carry(self) -> None:
        """Put a copy as of now in the store's place, one that no process has open."""
        copy = self._work / "copy.db"
        with contextlib.suppress(FileNotFoundError):
            copy.unlink()
        try:
            with (
                closing(sqlite3.connect(self._work / "study.db")) as own,
                closing(sqlite3.connect(copy)) as to,
            ):
                own.backup(to)
                to.execute("UPDATE studies SET owner = NULL")
                to.commit()
                to.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            data = copy.read_bytes()
        except (sqlite3.Error, OSError) as error:
            raise StorageError(f"{self._work / 'study.db'} cannot be copied: {error}") from error
        atomic_write(self.home, data)
        self._seen = _stamp(self.home)

    def _carry_now_and_then(self, period_s: float) -> None:
        known = None
        with closing(sqlite3.connect(self._work / "study.db")) as connection:
            while not self._over.wait(period_s):
                version = connection.execute("PRAGMA data_version").fetchone()
                # What another process has put there is added at the end; what fails now is tried again.
                if version != known and _stamp(self.home) == self._seen:
                    with contextlib.suppress(StorageError):
                        self._carry()
                        known = version


def _stamp(path: Path) -> _Stamp:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
