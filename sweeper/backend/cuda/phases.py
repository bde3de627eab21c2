"""Where the time of one configuration goes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

__all__ = ["Phases"]


class Phases:
    """Adds up wall-clock seconds by phase: `load`, `verify`, `warmup`, `measure`, `finish`.

    A phase within another is not counted twice: the outer one stands still meanwhile.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._running: list[str] = []
        self._since = 0.0

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self._turn()
        self._running.append(name)
        try:
            yield
        finally:
            self._turn()
            self._running.pop()

    def _turn(self) -> None:
        """Count the time until now for whichever phase was running."""
        now = time.perf_counter()
        if self._running:
            name = self._running[-1]
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now
