"""Where cuBLAS and cuBLASLt are: NVIDIA's packages, the loader's own paths, a toolkit."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweeper.errors import SetupError

__all__ = ["CublasError", "load", "missing", "starting", "where"]

_MAJORS = (13, 12, 11)


class CublasError(Exception):
    """A call of the library failed with `status`."""

    def __init__(self, status: int, call: str) -> None:
        super().__init__(f"{call} gave status {status}")
        self.status = status


@contextlib.contextmanager
def starting(name: str) -> Iterator[None]:
    """Say that the library `name` could not be started, where a call fails: SetupError."""
    try:
        yield
    except CublasError as error:
        raise SetupError(f"{name} cannot be started: {error}") from error


def missing(name: str, stem: str) -> SetupError:
    return SetupError(
        f"{name} was not found",
        hint=f"install nvidia-cublas (or nvmath-python), or put {stem}.so on LD_LIBRARY_PATH",
    )


def where(stem: str) -> Iterator[str]:
    """Paths and names under which the shared library `stem` (`libcublas`, `libcublasLt`) may be, best first."""
    folders = [f"{path}/nvidia/*/lib" for path in sys.path if path]
    folders += os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    folders += [f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/lib64"]
    for folder in filter(None, folders):
        yield from sorted(glob.glob(f"{folder}/{stem}.so.[0-9]*"), reverse=True)
    yield from (f"{stem}.so.{major}" for major in _MAJORS)


def load(stem: str) -> Any | None:
    """The shared library `stem`, or None where there is none that can be loaded."""
    for path in where(stem):
        if stem == "libcublas":
            # Its companion is not always on the loader's paths; a copy loaded before is the one it takes.
            companion = Path(path).parent / Path(path).name.replace("libcublas", "libcublasLt")
            with contextlib.suppress(OSError):
                ctypes.CDLL(str(companion), mode=ctypes.RTLD_GLOBAL)
        with contextlib.suppress(OSError):
            return ctypes.CDLL(path)
    return None
