"""A kernel's files as bytes: gathered where they lie, and laid out in the same way on another node.

A folder of them is named by their content, so that a node writes it once and every process there may use it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sweeper.build.cache import BuildCache
from sweeper.build.source import TranslationUnit
from sweeper.errors import StorageError
from sweeper.model import KernelSpec
from sweeper.source.includes import read_tree

__all__ = ["SourceFiles", "files_of_kernel", "files_of_unit", "laid_out"]


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """Files by their place below `root`, with `/` between its parts; `digest` is that of places and contents."""

    root: Path
    files: tuple[tuple[str, bytes], ...]
    digest: str

    def place(self, path: Path) -> str:
        """Where `path` lies below the root, wherever the files are laid out."""
        return _absolute(path).relative_to(self.root).as_posix()


def files_of_unit(unit: TranslationUnit) -> SourceFiles:
    """What a compiler reads for `unit`: the source and its headers."""
    tree = read_tree(unit.source, unit.include_dirs)
    return _gathered((file.path for file in tree.files), unit.include_dirs)


def files_of_kernel(spec: KernelSpec) -> SourceFiles:
    """What a worker reads to load `spec`: the source, its headers, and a reference in Python."""
    tree = read_tree(spec.source, (spec.source.parent,))
    reference = [spec.reference.path] if spec.reference.path is not None else []
    return _gathered([*(file.path for file in tree.files), *reference], (spec.source.parent,))


def _absolute(path: Path) -> Path:
    """Without `..`, and with links as they are: files that include each other keep their distance."""
    return Path(os.path.normpath(path.absolute()))


def _gathered(paths: Iterable[Path], folders: Iterable[Path]) -> SourceFiles:
    found = list(dict.fromkeys(_absolute(path) for path in paths))
    root = Path(os.path.commonpath([*(path.parent for path in found), *map(_absolute, folders)]))
    files = tuple((path.relative_to(root).as_posix(), path.read_bytes()) for path in found)
    digest = hashlib.sha256()
    for place, content in files:
        digest.update(f"{len(place)}:{place}:{len(content)}:".encode() + content)
    return SourceFiles(root, files, digest.hexdigest()[:40])


def laid_out(files: Iterable[tuple[str, bytes]], digest: str, cache: BuildCache) -> Path:
    """The folder on this node that has `files`, beside the builds of `cache`. Raises StorageError."""
    folder = cache.root / "sources" / digest
    if folder.is_dir():
        return folder
    stage = folder.with_name(f"{digest}.{os.getpid()}.{uuid.uuid4().hex}")
    try:
        for place, content in files:
            path = stage / PurePosixPath(place)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        stage.rename(folder)
    except OSError as error:
        shutil.rmtree(stage, ignore_errors=True)
        # Another process was first.
        if not folder.is_dir():
            raise StorageError(
                f"a kernel's sources cannot be written to {folder}: {error.strerror or error}",
                hint="free some space, or set SWEEPER_CACHE on the nodes of the cluster",
            ) from None
    return folder
