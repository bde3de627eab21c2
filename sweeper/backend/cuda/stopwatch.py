"""Time on the device, between events of a stream."""

from __future__ import annotations

from typing import Any

__all__ = ["Stopwatch"]


class Stopwatch:
    """Three CUDA events, used again and again; resolution about 0.5 µs. May raise PyCUDA's errors.

    `start` and `stop` enclose what is timed. `mark` may come before `start`, for what leads up to it.
    """

    def __init__(self, drv: Any, stream: Any) -> None:
        self._stream = stream
        self._mark, self._start, self._stop = drv.Event(), drv.Event(), drv.Event()

    def mark(self) -> None:
        self._mark.record(self._stream)

    def start(self) -> None:
        self._start.record(self._stream)

    def stop(self) -> None:
        self._stop.record(self._stream)

    @property
    def marked(self) -> bool:
        """Whether the device has come to the mark already."""
        return bool(self._mark.query())

    @property
    def started(self) -> bool:
        """Whether the device has come to the start already."""
        return bool(self._start.query())

    def wait_ms(self) -> float:
        """Wait for the stop; milliseconds since the start."""
        self._stop.synchronize()
        return float(self._stop.time_since(self._start))

    def lead_ms(self) -> float:
        """Wait for the start; milliseconds since the mark."""
        self._start.synchronize()
        return float(self._start.time_since(self._mark))
