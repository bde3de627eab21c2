"""What a device's lane asks of whoever holds the device: a process on this host, or one in a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from sweeper.backend.base import Finalist, MeasureProtocol, Outcome, Rounds, Turns
from sweeper.device import DeviceIdentity, Target
from sweeper.model import Build, KernelSpec, Point

__all__ = ["Roaming", "Worker"]


class Worker(Protocol):
    """One device, as `sweeper.worker.pool.DeviceWorker` describes it; not safe for threads, but for `kill`."""

    def identify(self) -> tuple[Target, DeviceIdentity]: ...

    def prepare(self, spec: KernelSpec, dims: Mapping[str, int], seed: int) -> None: ...

    def measure(self, point: Point, build: Build | None, protocol: MeasureProtocol) -> Outcome:
        """`build` is None where nothing is built, as for a recorded table."""
        ...

    def baseline(self, library: str, protocol: MeasureProtocol) -> Outcome: ...

    def confirm(
        self, finalists: Sequence[Finalist], protocol: MeasureProtocol, rounds: Rounds
    ) -> tuple[Turns, ...]: ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class Roaming(Protocol):
    """A worker whose device may be another one after its process or node was lost.

    `identity` is the device that answered last.
    """

    identity: DeviceIdentity
