"""A recorded table in whichever format it is in."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

from sweeper.atomic import storage_error
from sweeper.recording.compact import FORMAT, of_compact
from sweeper.recording.kernel_tuner import is_cache, mended, of_cache
from sweeper.recording.plain import is_plain, of_plain
from sweeper.recording.row import Recorded
from sweeper.recording.shapes import is_shapes, of_shapes
from sweeper.recording.t4 import is_t4, of_t4
from sweeper.recording.trials import foreign, of_csv, of_store

__all__ = ["read_recorded"]

_SQLITE = b"SQLite format 3\x00"


def read_recorded(path: Path) -> list[Recorded]:
    """All rows of the table at `path`, in its order; its content tells its format, gzipped or not.

    Raises StorageError for a file that cannot be read or is no such table.
    """
    try:
        with path.open("rb") as file:
            start = file.read(len(_SQLITE))
        if start == _SQLITE:
            return list(of_store(path))
        data = path.read_bytes()
        text = (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode("utf-8")
    except (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise foreign(path, str(error)) from error
    except OSError as error:
        raise storage_error(path, error, doing="read") from error
    if text.startswith("#") and f'"{FORMAT}"' in text[: text.find("\n")]:
        return list(of_compact(path, text))
    if text.lstrip().startswith("{"):
        return list(_of_json(path, text))
    header = text[: text.find("\n")]
    if is_shapes(header):
        return list(of_shapes(path, text))
    if is_plain(header):
        return list(of_plain(path, text))
    return list(of_csv(path, text))


def _of_json(path: Path, text: str) -> Iterator[Recorded]:
    try:
        content = json.loads(text)
    except ValueError:
        content = mended(path, text)
    if is_t4(content):
        return of_t4(path, content)
    if is_cache(content):
        return of_cache(path, content)
    raise foreign(path, "its JSON has neither T4's `results` nor Kernel Tuner's `cache`")
