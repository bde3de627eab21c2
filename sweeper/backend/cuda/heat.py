"""How long a device has been at work without a rest: its clock rises with work and falls with idling."""

from __future__ import annotations

import time

__all__ = ["Heat"]

# A rest this short leaves the clock where it is: an idle GPU keeps it far longer.
_REST_S = 0.1


class Heat:
    """Adds up work, in milliseconds of the device's time; a rest of more than 0.1 s undoes it."""

    def __init__(self) -> None:
        self._work_ms = 0.0
        self._ended_s = -float("inf")

    def add(self, work_ms: float) -> None:
        """The device has worked for `work_ms` until now."""
        now = time.monotonic()
        if now - work_ms / 1e3 - self._ended_s > _REST_S:
            self._work_ms = 0.0
        self._work_ms += work_ms
        self._ended_s = now

    def lacking_ms(self, wanted_ms: float) -> float:
        """How much more work makes `wanted_ms` without a rest."""
        rested = time.monotonic() - self._ended_s > _REST_S
        return max(0.0, wanted_ms - (0.0 if rested else self._work_ms))
