"""A recorded table in the place of a device: what a cluster does with points, tried without a GPU."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeper.backend.base import Finalist, MeasureProtocol, Outcome, Rounds, Turns
from sweeper.backend.replay import ReplayTable
from sweeper.device import DeviceIdentity, Target, target
from sweeper.errors import SetupError
from sweeper.model import Build, KernelSpec, Point

__all__ = ["RecordedWorker", "table_message"]


def table_message(path: Path, target_name: str, *, pace_s: float = 0.0) -> dict[str, Any]:
    """The table at `path` as a worker elsewhere needs it; each answer takes it `pace_s`, as a device would."""
    return {"name": path.name, "content": path.read_bytes(), "target": target_name, "pace_s": pace_s}


class RecordedWorker:
    """Answers from a table that came as bytes, as a worker answers from a device."""

    def __init__(self, message: Mapping[str, Any]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sweeper-table-")
        path = Path(self._folder.name) / message["name"]
        path.write_bytes(message["content"])
        self._table = ReplayTable(path)
        self._target = target(message["target"])
        self._pace_s = float(message["pace_s"])

    def identify(self) -> tuple[Target, DeviceIdentity]:
        return self._target, self._table.identity

    def prepare(self, spec: KernelSpec, dims: Mapping[str, int], seed: int) -> None:
        del seed
        self._table.select(spec.name, spec.dtype.name, dims, spec.layout if "t" in spec.layout else "")

    def measure(self, point: Point, build: Build | None, protocol: MeasureProtocol) -> Outcome:
        del build, protocol
        time.sleep(self._pace_s)
        return self._table.outcome(point)

    def baseline(self, library: str, protocol: MeasureProtocol) -> Outcome:
        del protocol
        return self._table.baseline(library)

    def confirm(
        self, finalists: Sequence[Finalist], protocol: MeasureProtocol, rounds: Rounds
    ) -> tuple[Turns, ...]:
        del finalists, protocol, rounds
        raise SetupError("a recorded table has no clock to confirm times by")

    def kill(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        self._folder.cleanup()
