"""Compiled configurations on disk, one folder a key, shared by every process of a user.

    <root>/builds/<key's first two>/<key>/{manifest.json, <artifact>}
    <root>/staging/…      folders being written or removed
    <root>/logs/…         what compilers said

A folder appears whole, by a rename, or not at all; where several processes build one key, the first
rename wins and the others use it. A manifest holds the SHA-256 of its artifact, checked on every read.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import logging
import os
import shutil
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import platformdirs

from sweeper.build.manifest import build_key, read_manifest, write_manifest
from sweeper.errors import StorageError
from sweeper.model import Build

__all__ = ["BuildCache", "build_key", "default_root"]

_log = logging.getLogger(__name__)

_MANIFEST = "manifest.json"
_STAGING_MAX_AGE_S = 24 * 3600.0
_RECENT_S = 3600.0
_PUBLISHES_BETWEEN_PRUNES = 64
# A command with many jobs makes many caches; one word on a folder that none can use is enough.
_SAID: set[str] = set()


def default_root() -> Path:
    """`SWEEPER_CACHE`, else the user's cache folder of this platform."""
    named = os.environ.get("SWEEPER_CACHE")
    if named:
        return Path(named).expanduser()
    return Path(platformdirs.user_cache_dir("sweeper", appauthor=False))


class BuildCache:
    """Builds by key under `root`. Safe to share between threads and processes.

    A root that cannot be written is said once; builds then live in a private temporary folder for as
    long as this process. `max_bytes` bounds what is kept: least recently used builds go first, none
    that was used within the last hour.
    """

    def __init__(self, root: Path | None = None, *, max_bytes: int | None = None) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._warned: set[str] = set()
        self._published = 0
        self.root = default_root() if root is None else root
        self.persistent = True
        try:
            self._make_folders()
        except OSError as error:
            self._fall_back(error, self.root)
        self._drop_abandoned()

    def _make_folders(self) -> None:
        for name in ("builds", "staging", "logs"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self.root / "staging") as probe:
            probe.write(b"writable")

    def _fall_back(self, error: OSError, failed: Path) -> None:
        """Leave the root alone from now on. `failed` is the root that `error` was met under."""
        with self._lock:
            if failed != self.root:
                return
            reason = error.strerror or str(error)
            if not self.persistent:
                raise _nowhere_to_write(self.root, reason)
            self._warn_once("unwritable", f"no build cache: {self.root}: {reason}", said=_SAID)
            self.persistent = False
            try:
                self.root = Path(tempfile.mkdtemp(prefix="sweeper-builds-"))
                atexit.register(_remove_own, self.root, os.getpid())
                self._make_folders()
            except OSError as second:
                raise _nowhere_to_write(self.root, second.strerror or str(second)) from None

    def _warn_once(self, topic: str, message: str, said: set[str] | None = None) -> None:
        """Warn of `topic` once a cache, or with `said` of this message once a process."""
        told, key = (self._warned, topic) if said is None else (said, message)
        if key not in told:
            told.add(key)
            _log.warning("%s", message)

    def _drop_abandoned(self) -> None:
        """Remove what killed processes left in staging: this host's at once, others' after a day."""
        oldest = time.time() - _STAGING_MAX_AGE_S
        with contextlib.suppress(OSError):
            for folder in (self.root / "staging").iterdir():
                if folder.stat().st_mtime < oldest or _is_orphan(folder.name):
                    shutil.rmtree(folder, ignore_errors=True)

    def folder(self, key: str) -> Path:
        """Where the build called `key` is, or would be."""
        return self.root / "builds" / key[:2] / key

    def log_path(self, name: str) -> Path:
        """Where a compiler's whole message about the build `name` belongs."""
        return self.root / "logs" / f"{name}.log"

    @contextlib.contextmanager
    def staging(self) -> Iterator[Path]:
        """A private folder to compile in, removed afterwards whatever happened."""
        root = self.root
        try:
            folder = self._new_staging()
        except OSError as error:
            self._fall_back(error, root)
            folder = self._new_staging()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _new_staging(self) -> Path:
        folder = self._staging_path()
        folder.mkdir()
        return folder

    def _staging_path(self) -> Path:
        return self.root / "staging" / f"{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex}"

    def get(self, key: str) -> Build | None:
        """The build called `key` with `cached` set, or None. A damaged one is said once and removed."""
        folder = self.folder(key)
        try:
            build = read_manifest(key, folder)
        except FileNotFoundError:
            if not folder.is_dir():
                return None
            self._discard(folder, "a file is missing")
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._discard(folder, str(error))
            return None
        with contextlib.suppress(OSError):
            os.utime(folder / _MANIFEST)
        return replace(build, cached=True)

    def _discard(self, folder: Path, reason: str) -> None:
        with self._lock:
            self._warn_once("damaged", f"damaged build {folder.name} is built again: {reason}")
        self._remove(folder)

    def _remove(self, folder: Path) -> None:
        """Take a folder away in one step, so that no reader meets half of it."""
        grave = self._staging_path()
        with contextlib.suppress(OSError):
            folder.rename(grave)
            shutil.rmtree(grave, ignore_errors=True)

    def publish(self, build: Build, artifact: bytes | Path) -> Build:
        """Keep `build`; `artifact` (bytes, or a file to copy) becomes `build.artifact.name` in its folder.

        Returns the build as kept: another process's, where that one was first. Raises StorageError
        where not even a temporary folder can hold it.
        """
        content = artifact if isinstance(artifact, bytes) else artifact.read_bytes()
        while True:
            root = self.root
            try:
                kept = self._publish(build, content)
            except OSError as error:
                self._fall_back(error, root)
            else:
                self._count_publish()
                return kept

    def _publish(self, build: Build, content: bytes) -> Build:
        with self.staging() as stage:
            folder = self.folder(build.key)
            whole = stage / build.key
            whole.mkdir()
            (whole / build.artifact.name).write_bytes(content)
            write_manifest(build, content, whole)
            folder.parent.mkdir(exist_ok=True)
            while not _rename_new(whole, folder):
                winner = self.get(build.key)
                if winner is not None:
                    return replace(winner, cached=False, seconds=build.seconds)
            return replace(build, artifact=folder / build.artifact.name)

    def _count_publish(self) -> None:
        with self._lock:
            self._published += 1
            due = self._published % _PUBLISHES_BETWEEN_PRUNES == 0
        if due:
            self.prune()

    def prune(self) -> int:
        """Remove least recently used builds until at most `max_bytes` are kept; bytes removed."""
        if self.max_bytes is None:
            return 0
        sizes = sorted(self._sizes())
        excess = sum(size for _, size, _ in sizes) - self.max_bytes
        removed = 0
        for used, size, folder in sizes:
            if removed >= excess or used > time.time() - _RECENT_S:
                break
            self._remove(folder)
            removed += size
        return removed

    def _sizes(self) -> Iterator[tuple[float, int, Path]]:
        """(when last used, bytes, folder) of each build."""
        for manifest in (self.root / "builds").glob(f"*/*/{_MANIFEST}"):
            with contextlib.suppress(OSError):
                size = sum(f.stat().st_size for f in manifest.parent.iterdir())
                yield manifest.stat().st_mtime, size, manifest.parent


def _nowhere_to_write(folder: Path, reason: str) -> StorageError:
    return StorageError(
        f"builds cannot be written to {folder}: {reason}",
        hint="free some space, or set TMPDIR to a folder that has some",
    )


def _is_orphan(name: str) -> bool:
    """Whether a staging folder's process ran on this host and is gone."""
    host, pid, _ = [*name.rsplit(".", 2), "", ""][:3]
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _rename_new(source: Path, target: Path) -> bool:
    """Rename a folder; False where there is one of that name already."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def _remove_own(folder: Path, pid: int) -> None:
    """Remove this process's temporary folder; a forked child leaves it to its parent."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)
