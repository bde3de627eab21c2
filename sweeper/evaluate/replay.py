"""Points looked up in a recorded table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeper.backend.base import Finalist, Outcome, Rounds
from sweeper.backend.replay import ReplayTable
from sweeper.config import BackendConfig
from sweeper.device import DeviceIdentity, target
from sweeper.errors import ConfigError, TrialFailed
from sweeper.model import KernelSpec, Point, TimeSource
from sweeper.worker.ticket import Ticket

__all__ = ["ReplayEvaluator"]


class ReplayEvaluator:
    """Looks every point up in a recorded table; nothing is built and no device is touched."""

    backend = "replay"
    time_source = TimeSource.REPLAYED
    capacity = 1
    spare_builders = 0

    def __init__(self, config: BackendConfig, objective: str = "time") -> None:
        if not config.path:
            raise ConfigError(
                "backend=replay needs a table", hint="add backend.path=PATH of a trials.csv or study.db"
            )
        self._table = ReplayTable(Path(config.path))
        if objective != "time" and not self._table.has_energies:
            raise ConfigError(
                f"measure.objective = {objective}: {config.path} holds no energies",
                hint="give a table of a run with measure.objective=energy or both",
            )
        content = hashlib.sha256(self._table.path.read_bytes()).hexdigest()
        self.compiler = f"recorded {content[:12]}"
        self.target = target(config.target)
        self.identity = self._table.identity
        self.devices: Sequence[DeviceIdentity] = [self.identity]

    def prepare(self, spec: KernelSpec, dims: Mapping[str, int], seed: int) -> None:
        del seed
        self._table.select(spec.name, spec.dtype.name, dims, spec.layout if "t" in spec.layout else "")

    def ready(self) -> None:
        """Nothing is waited for."""

    def build_ahead(self, points: Sequence[Point]) -> None:
        """Nothing is built."""

    def submit(self, point: Point) -> Ticket:
        return Ticket(point, device=self.identity)

    def baseline(self, library: str) -> Ticket:
        return Ticket(None, library=library, device=self.identity)

    def seen(self, time_ms: float) -> None:
        """Nothing is judged by it."""

    def finish(self, ticket: Ticket) -> Outcome:
        if ticket.point is None:
            return self._table.baseline(ticket.library or "")
        return self._table.outcome(ticket.point)

    def finalists(self, points: Sequence[Point]) -> list[Finalist | TrialFailed]:
        return [Finalist(point) for point in points]

    def confirm(self, finalists: Sequence[Finalist], rounds: Rounds) -> None:
        """Nothing is timed."""

    def seconds(self) -> dict[str, Any]:
        return {"device_busy": [], "waiting_for_builds": 0.0, "phases": {}}

    def close(self) -> None:
        """Nothing is held."""
