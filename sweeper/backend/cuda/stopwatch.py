"""Time on the device, between two events of a stream."""

from __future__ import annotations

from typing import Any

__all__ = ["Stopwatch"]


class Stopwatch:
    """Two CUDA events, used again and again; resolution about 0.5 µs. May raise PyCUDA's errors."""

    def __init__(self, drv: Any, stream: Any) -> None:
        self._stream = stream
        self._start, self._stop = drv.Event(), drv.Event()

    def start(self) -> None:
        self._start.record(self._stream)

    def stop(self) -> None:
        self._stop.record(self._stream)

    @property
    def started(self) -> bool:
        """Whether the device has come to the start already."""
        return bool(self._start.query())

    def wait_ms(self) -> float:
        """Wait for the stop; milliseconds since the start."""
        self._stop.synchronize()
        return float(self._stop.time_since(self._start))
