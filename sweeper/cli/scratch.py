"""A folder on a disk of this host, for stores whose own folder is on a network file system."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sweeper.atomic import storage_error
from sweeper.errors import StorageError
from sweeper.sqlite_file import network_file_system

__all__ = ["SCRATCH_VARIABLES", "on_a_disk", "scratch"]

# What clusters call a job's own folder on the node's disk.
SCRATCH_VARIABLES = ("SLURM_TMPDIR", "TMPDIR")


def scratch() -> Path:
    """A folder on a disk of this host. Raises StorageError where there is none."""
    named = [os.environ[name] for name in SCRATCH_VARIABLES if os.environ.get(name)]
    for folder in map(Path, [*named, tempfile.gettempdir()]):
        if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK) and network_file_system(folder) is None:
            return folder
    raise StorageError(
        f"no folder on a disk of this host ({', '.join(SCRATCH_VARIABLES)})",
        hint="set TMPDIR to one, or use a PostgreSQL server: store=postgresql",
    )


@contextlib.contextmanager
def on_a_disk(store: Path) -> Iterator[Path]:
    """The file of a closed store, or a copy of it where it lies on a network file system. Raises StorageError."""
    if network_file_system(store.parent) is None:
        yield store
        return
    with tempfile.TemporaryDirectory(prefix="sweeper-store-", dir=scratch()) as folder:
        copy = Path(folder) / store.name
        try:
            shutil.copyfile(store, copy)
        except OSError as error:
            raise storage_error(store, error, doing="read") from error
        yield copy
