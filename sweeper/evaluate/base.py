"""What the loop needs of the world: a point goes in, an outcome or a reasoned failure comes out.

`LiveEvaluator` builds in a pool and measures in the processes that own the devices, both ahead of whoever
waits; `ReplayEvaluator` looks a recorded table up. The loop knows neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sweeper.backend.base import Finalist, Outcome, Rounds, Turns
from sweeper.device import DeviceIdentity, Target
from sweeper.errors import TrialFailed
from sweeper.model import KernelSpec, Point, TimeSource
from sweeper.worker.ticket import Ticket

__all__ = ["Evaluator"]


class Evaluator(Protocol):
    """Runs points; each is waited for by its ticket.

    `identity` is the device's, or where several serve, what they have in common, without a uuid; `devices`
    are all of them. `capacity` is how many points can be under way at once to some purpose.
    """

    backend: str
    time_source: TimeSource
    target: Target
    identity: DeviceIdentity
    devices: Sequence[DeviceIdentity]
    compiler: str
    capacity: int

    def prepare(self, spec: KernelSpec, dims: Mapping[str, int], seed: int) -> None:
        """Begin to prepare the problem; points can be submitted at once."""
        ...

    def ready(self) -> None:
        """Wait until the problem is prepared. Raises TrialFailed (it does not fit), SetupError."""
        ...

    @property
    def spare_builders(self) -> int:
        """How many points can be built beforehand without keeping those that were submitted from it."""
        ...

    def build_ahead(self, points: Sequence[Point]) -> None:
        """Begin to build points of the prepared problem that may be submitted later, or never."""
        ...

    def submit(self, point: Point) -> Ticket:
        """Begin to build `point`, and to run it as soon as that is done; returns at once."""
        ...

    def baseline(self, library: str) -> Ticket:
        """Begin to run the library's own kernel for the prepared problem."""
        ...

    def seen(self, time_ms: float) -> None:
        """Hear of a valid time that was found in the store, for what is judged by the best so far."""
        ...

    def finish(self, ticket: Ticket) -> Outcome:
        """Wait for what came of it. Raises TrialFailed, SetupError, StorageError."""
        ...

    def finalists(self, points: Sequence[Point]) -> list[Finalist | TrialFailed]:
        """Each point built, again where it was before, or why it cannot be."""
        ...

    def confirm(
        self, finalists: Sequence[Finalist], rounds: Rounds
    ) -> tuple[tuple[Turns, ...], DeviceIdentity] | None:
        """Time the finalists in turns on one device, and say which; None where nothing is timed.

        Raises TrialFailed, SetupError.
        """
        ...

    def seconds(self) -> dict[str, Any]:
        """Where the time went: `device_busy` for each device, `waiting_for_builds`, and phases of a run."""
        ...

    def close(self) -> None: ...
