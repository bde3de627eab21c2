"""The process that owns a device: `python -m sweeper.worker.main BACKEND`, started by `sweeper.worker.pool`.

Little is imported before `serve` has forked its guard; the rest is loaded while the first request is awaited.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.process import serve

if TYPE_CHECKING:
    from sweeper.backend.base import Backend

__all__ = ["BACKENDS", "MakeBackend", "run"]

MakeBackend = Callable[[Path | None, bool], "Backend"]
"""Makes a backend, given a folder for what should outlive the process, and whether to share the device."""


def _cuda(scratch: Path | None, allow_shared: bool) -> Backend:
    from sweeper.backend.cuda import CudaBackend

    return CudaBackend(scratch=scratch, allow_shared=allow_shared)


def _emulator(scratch: Path | None, allow_shared: bool) -> Backend:
    from sweeper.backend.emulator import EmulatorBackend

    del scratch, allow_shared
    return EmulatorBackend()


BACKENDS: Mapping[str, MakeBackend] = {"cuda": _cuda, "emulator": _emulator}


def _load(name: str, *, early: bool) -> None:
    """Load what the first request will need, the driver's own start beside it.

    A process that was started `early`, before its first request was known, has time for a library too.
    What cannot be loaded is left to that request, which says so in its reply.
    """
    if name == "cuda":
        threading.Thread(target=_start_driver, name="starting the driver", daemon=True).start()
    modules = {"cuda": ["sweeper.backend.cuda", "pycuda.driver"], "emulator": ["sweeper.backend.emulator"]}
    for module in ["sweeper.worker.operations", *modules.get(name, [])]:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    if name == "cuda" and early:
        # The library that most searches are compared with takes as long to load as all the modules.
        with contextlib.suppress(ImportError):
            importlib.import_module("sweeper.backend.cuda.cublas_loading").load("libcublas")


def _start_driver() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libcuda.so.1").cuInit(0)


class _FirstRequest:
    """Makes the handler when the first request comes."""

    def __init__(self, make: Callable[[], Backend]) -> None:
        self._make = make
        self._backend: Backend | None = None
        self._handle: Callable[[dict[str, Any]], dict[str, Any]] | None = None

    def __call__(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._handle is None:
            from sweeper.worker.operations import Operations

            self._backend = self._make()
            self._handle = Operations(self._backend)
        return self._handle(message)

    def close(self) -> None:
        if self._backend is not None:
            self._backend.close()


def run(args: Sequence[str], backends: Mapping[str, MakeBackend] = BACKENDS) -> None:
    """Serve requests on the backend `args[0]`; then the folder for scratch files, and `shared`, `early` or nothing.

    Does not return: the process ends without running destructors, which a lost context makes hang.
    """
    name, scratch, *rest = args
    make = backends[name]
    handler = _FirstRequest(lambda: make(Path(scratch) if scratch else None, "shared" in rest))
    serve(handler, meanwhile=lambda: _load(name, early="early" in rest))
    with contextlib.suppress(Exception):
        handler.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    run(sys.argv[1:])
