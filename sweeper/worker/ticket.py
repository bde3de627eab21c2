"""A configuration on its way through builder and device."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

from sweeper.backend.base import Outcome
from sweeper.device import DeviceIdentity
from sweeper.model import Build, Point

__all__ = ["Ticket"]


@dataclass(slots=True, eq=False)
class Ticket:
    """A point (or a library's kernel) on its way to an outcome, which is a TrialFailed where it failed.

    `device` is the one that ran it last (None: none did), `measure_s` what that took there, and
    `stop_above_ms` the time past which it need not have been sampled in full.
    """

    point: Point | None
    build: Future[Build] | None = None
    library: str | None = None
    outcome: Future[Outcome] = field(default_factory=Future)
    device: DeviceIdentity | None = None
    measure_s: float = 0.0
    stop_above_ms: float | None = None
    ready: bool = False
    lost_devices: int = 0
