"""SQLite's files: where they may be, the state they were left in, and reading one without touching it."""

from __future__ import annotations

import os
import re
import sqlite3
import struct
from pathlib import Path
from urllib.parse import quote

from sweeper.atomic import storage_error, sync_folder
from sweeper.errors import StorageError

__all__ = [
    "MOUNTS",
    "connect_read_only",
    "cut_off",
    "network_file_system",
    "prepare_folder",
    "unfinished_write",
]

MOUNTS = Path("/proc/mounts")
_NETWORK = {
    "nfs",
    "nfs4",
    "cifs",
    "smb",
    "smb3",
    "smbfs",
    "afs",
    "ceph",
    "glusterfs",
    "lustre",
    "beegfs",
    "gpfs",
}
_NETWORK |= {f"fuse.{name}" for name in ("ceph", "glusterfs", "sshfs", "s3fs", "rclone", "davfs2")}
_WAL_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24


def prepare_folder(folder: Path, *, mounts: Path = MOUNTS) -> None:
    """Make `folder` if it is missing; StorageError where a store cannot be kept in it."""
    kind = network_file_system(folder, mounts=mounts)
    if kind is not None:
        raise StorageError(
            f"{folder} is on a network file system ({kind}), where SQLite's write-ahead log is not safe",
            hint="use a local folder with results_dir=FOLDER, or a PostgreSQL server",
        )
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for made in missing:
            sync_folder(made.parent)
    except OSError as error:
        raise storage_error(folder, error, doing="made") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageError(
            f"{folder} is read-only", hint="choose a folder that can be written, with results_dir=FOLDER"
        )


def network_file_system(path: Path, *, mounts: Path = MOUNTS) -> str | None:
    """The type of the network file system that holds `path`, or None for a local or unknown one."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    resolved = Path(os.path.realpath(path))
    kind, depth = "", -1
    for line in lines:
        fields = line.split()
        if len(fields) < 3:
            continue
        mounted = Path(_unescaped(fields[1]))
        # Of equal mount points the later line hides the earlier one.
        if resolved.is_relative_to(mounted) and len(mounted.parts) >= depth:
            kind, depth = fields[2], len(mounted.parts)
    return kind if kind in _NETWORK else None


def _unescaped(field: str) -> str:
    r"""A mount point as the kernel writes it: space, tab, newline and backslash as `\ooo`."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def cut_off(database: Path) -> bool:
    """Whether the SQLite file ends before the length that its own header states.

    A file with a log beside it may: its last pages are in the log until the next checkpoint.
    """
    try:
        with database.open("rb") as file:
            header = file.read(100)
        size = database.stat().st_size
        log = database.with_name(database.name + "-wal")
        if log.exists() and log.stat().st_size:
            return False
    except OSError:
        return False
    # The length counts only if the header was written by an SQLite that keeps it (since 2010).
    if len(header) < 100 or not header.startswith(b"SQLite format 3\x00") or header[24:28] != header[92:96]:
        return False
    page_size, pages = struct.unpack_from(">H", header, 16)[0], struct.unpack_from(">I", header, 28)[0]
    return int(size) < (65536 if page_size == 1 else page_size) * int(pages)


def unfinished_write(database: Path) -> bool:
    """Whether the write-ahead log beside `database` ends within a transaction.

    Its format: https://sqlite.org/fileformat2.html#walformat. Frames left over from before the last
    checkpoint carry other salts and end the log.
    """
    try:
        log = database.with_name(database.name + "-wal").read_bytes()
    except OSError:
        return False
    if len(log) < _WAL_HEADER_BYTES:
        return len(log) > 0
    page_size, salts = struct.unpack_from(">I", log, 8)[0], log[16:24]
    frame = _FRAME_HEADER_BYTES + page_size
    if (len(log) - _WAL_HEADER_BYTES) % frame:
        return True
    committed = True
    for start in range(_WAL_HEADER_BYTES, len(log), frame):
        if log[start + 8 : start + 16] != salts:
            break
        committed = struct.unpack_from(">I", log, start + 4)[0] != 0
    return not committed


def connect_read_only(database: Path, *, busy_s: float = 2.0) -> sqlite3.Connection:
    """A connection that cannot write, with rows by column name. Raises sqlite3.Error.

    A database that was closed properly has no log beside it. It is opened as immutable, which leaves no
    files behind and works in a read-only folder.
    """
    path = os.path.realpath(database)
    log = Path(path + "-wal")
    mode = "mode=ro" if log.exists() and log.stat().st_size else "immutable=1"
    connection = sqlite3.connect(f"file:{quote(path)}?{mode}", uri=True, timeout=busy_s)
    connection.row_factory = sqlite3.Row
    return connection
