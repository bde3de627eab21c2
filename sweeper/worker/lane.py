"""One device of several: its worker, and the thread that serves it; and how all of them are opened."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from sweeper.device import DeviceIdentity, Target
from sweeper.errors import SetupError
from sweeper.model import KernelSpec
from sweeper.worker.base import Worker

__all__ = ["Lane", "Problem", "opened"]

T = TypeVar("T")
R = TypeVar("R")
Problem = tuple[KernelSpec, Mapping[str, int], int]
"""Kernel, sizes and seed."""


@dataclass(slots=True, eq=False)
class Lane:
    """One device: its worker, its thread, and how long it has been at work."""

    worker: Worker
    target: Target
    identity: DeviceIdentity
    thread: threading.Thread | None = None
    problem: Problem | None = None
    prepared: Future[None] = field(default_factory=Future)
    busy_s: float = 0.0
    starved_s: float = 0.0
    lost: bool = False

    @property
    def usable(self) -> bool:
        return not self.lost and self.prepared.done() and self.prepared.exception() is None


def opened(workers: Sequence[Worker]) -> list[Lane]:
    """A lane for each worker, its device known; opened it is with the first problem.

    Where one cannot be had, all are closed again.
    """
    try:
        return _side_by_side(lambda worker: Lane(worker, *worker.identify()), workers, workers)
    except BaseException:
        for worker in workers:
            with contextlib.suppress(SetupError):
                worker.close()
        raise


def _side_by_side(function: Callable[[T], R], items: Sequence[T], workers: Sequence[Worker]) -> list[R]:
    """`function` of every item, at once; an interrupt ends `workers`, which it would otherwise wait for."""
    if len(items) == 1:
        return [function(items[0])]
    with ThreadPoolExecutor(len(items), thread_name_prefix="device") as threads:
        try:
            return [future.result() for future in [threads.submit(function, item) for item in items]]
        except KeyboardInterrupt:
            for worker in workers:
                worker.kill()
            raise
