"""References on disk, so that a worker that takes a dead one's place need not compute them again."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sweeper.model import digest
from sweeper.problem import Problem
from sweeper.problem.reference import ReferenceValues

__all__ = ["ReferenceCache"]

References = dict[str, ReferenceValues]


class ReferenceCache:
    """Keeps the references of the last problem in `folder` (None: nowhere), read back by memory map.

    A folder that cannot be written or read is no error: the reference is computed instead.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def get(self, problem: Problem, compute: Callable[[], References]) -> References:
        """What `compute` gives for `problem`, from disk if it is there."""
        if self._folder is None:
            return compute()
        stem = self._folder / f"reference-{_key(problem)}"
        with contextlib.suppress(OSError, ValueError, KeyError):
            return {a.name: _load(stem, a.name, is_exact=a.dtype.is_integer) for a in problem.outputs}
        computed = compute()
        with contextlib.suppress(OSError):
            self._drop_others(stem.name)
            for name, values in computed.items():
                _save(stem, name, values)
        return computed

    def _drop_others(self, keep: str) -> None:
        if self._folder is not None:
            for path in self._folder.glob("reference-*"):
                if not path.name.startswith(keep):
                    path.unlink(missing_ok=True)


def _key(problem: Problem) -> str:
    spec = problem.spec
    reference = [spec.reference.kind, spec.reference.text, str(spec.reference.path)]
    return digest([problem.key, spec.digest, reference, spec.tolerance])


def _file(stem: Path, name: str, part: str) -> Path:
    return stem.with_name(f"{stem.name}-{name}-{part}.npy")


def _load(stem: Path, name: str, *, is_exact: bool) -> ReferenceValues:
    values = np.load(_file(stem, name, "values"), mmap_mode="r", allow_pickle=False)
    if is_exact:
        return ReferenceValues(values, np.broadcast_to(np.float64(0.0), values.shape))
    return ReferenceValues(values, np.load(_file(stem, name, "bound"), mmap_mode="r", allow_pickle=False))


def _save(stem: Path, name: str, reference: ReferenceValues) -> None:
    parts = {"values": reference.values}
    if reference.values.dtype.kind == "f":
        parts["bound"] = reference.bound
    # The values last: once they are there, all is there.
    for part in reversed(parts):
        path = _file(stem, name, part)
        partial = path.with_suffix(f".{os.getpid()}")
        with partial.open("wb") as file:
            np.save(file, parts[part], allow_pickle=False)
        partial.replace(path)
