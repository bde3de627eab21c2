"""Whole files or none: what a reader sees is the previous content or the new one, never a part.

The bytes go to a temporary file in the same folder, are synced to the disk, take the name in one rename,
and the rename itself is synced through the folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from uuid import uuid4

from sweeper.errors import StorageError

__all__ = ["atomic_write", "storage_error", "sync_folder"]

_HINTS = {
    errno.ENOSPC: "free some space, then run again: what is stored is kept and not measured again",
    errno.EDQUOT: "free some of your quota, then run again: what is stored is kept and not measured again",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f), then run again",
    errno.EROFS: "choose a folder that can be written, with results_dir=FOLDER",
    errno.EACCES: "choose a folder that can be written, with results_dir=FOLDER",
    errno.EPERM: "choose a folder that can be written, with results_dir=FOLDER",
}


def storage_error(path: Path, error: OSError, *, doing: str = "written") -> StorageError:
    """What the operating system refused, as an error that names the file and the remedy."""
    reason = error.strerror or str(error)
    return StorageError(f"{path} cannot be {doing}: {reason}", hint=_HINTS.get(error.errno or 0))


def atomic_write(path: Path, data: bytes) -> None:
    """Replace the content of `path` by `data`; durable on return, untouched on failure.

    Missing folders are made; a symbolic link keeps pointing where it does. Raises StorageError.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{uuid4().hex[:8]}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write_synced(temporary, data)
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        sync_folder(target.parent)
    except OSError as error:
        raise storage_error(path, error) from error


def _write_synced(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable: a new file is lost with a crash until its folder is synced."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems have no sync for folders and say so; the rename stands all the same.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
