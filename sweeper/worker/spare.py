"""A worker started before it is known what for, kept for the first that wants just such a one.

A command composes its configuration for about as long as a worker takes to load: both begin at once.
"""

from __future__ import annotations

import contextlib
import importlib.util
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sweeper.process import Child, ChildUnkillable

__all__ = [
    "WORKER_MODULE",
    "WorkerProcess",
    "drop_spare",
    "keep_spare",
    "may_need_gpu",
    "take_spare",
    "worker_child",
]

WORKER_MODULE = "sweeper.worker.main"

# Of NVIDIA's drivers for Linux, for Windows' Linux subsystem and for Tegra.
_DEVICE_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu")


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A process for `backend`, and the folder for what its successors need not compute again."""

    backend: str
    child: Child
    scratch: tempfile.TemporaryDirectory[str]

    def close(self) -> None:
        """End it, whatever it is doing. Raises ChildUnkillable."""
        try:
            self.child.kill()
        finally:
            self.scratch.cleanup()


def worker_child(
    backend: str,
    scratch: str,
    *,
    shared: bool = False,
    early: bool = False,
    module: str = WORKER_MODULE,
    env: Mapping[str, str] = {},
) -> Child:
    """The process of a worker, not yet started; `scratch` is a folder, `shared` allows others on the device.

    `early` tells it that its first request will be some time in coming.
    """
    # CUDA's own order is fastest first; PCI order is what nvidia-smi shows.
    environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **env}
    args = [backend, scratch, *(["shared"] if shared else []), *(["early"] if early else [])]
    return Child(module, args, env=environment, name=f"the {backend} worker")


def may_need_gpu() -> bool:
    """Whether a worker for a GPU is worth starting, by a look that takes no time and proves nothing."""
    seen = any(Path(path).exists() for path in _DEVICE_FILES)
    return seen and importlib.util.find_spec("pycuda") is not None


_kept: list[WorkerProcess] = []


def keep_spare(backend: str) -> None:
    """Start a worker's process for whoever asks first. Raises SetupError."""
    scratch = tempfile.TemporaryDirectory(prefix="sweeper-")
    process = WorkerProcess(backend, worker_child(backend, scratch.name, early=True), scratch)
    process.child.start()
    _kept.append(process)


def take_spare(backend: str) -> WorkerProcess | None:
    """The spare process, if there is one for `backend` and it is still alive; it is the caller's then."""
    for process in _kept:
        if process.backend == backend:
            _kept.remove(process)
            if process.child.alive:
                return process
            process.close()
            return None
    return None


def drop_spare() -> None:
    """End what nobody took."""
    while _kept:
        with contextlib.suppress(ChildUnkillable):
            _kept.pop().close()
