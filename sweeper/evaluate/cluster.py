"""The evaluators of a search whose devices and builds are those of a Ray cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweeper.backend.base import Outcome
from sweeper.cluster.engine import RayEngine
from sweeper.cluster.recorded import table_message
from sweeper.cluster.worker import ActorSettings
from sweeper.config import Config
from sweeper.device.present import count_gpus, why_no_gpu
from sweeper.errors import SetupError
from sweeper.evaluate.base import Evaluator
from sweeper.evaluate.energy import require_times
from sweeper.evaluate.live import LiveEvaluator
from sweeper.evaluate.replay import ReplayEvaluator
from sweeper.model import KernelSpec, Point
from sweeper.worker.group import DeviceGroup
from sweeper.worker.lane import Problem
from sweeper.worker.ticket import Ticket

__all__ = ["ClusterReplay", "make_on_cluster"]

_NO_GPU = (
    "nvidia-smi lists them; engine.address=auto joins a cluster, backend=emulator engine.gpus=2 pretends two"
)


def make_on_cluster(
    config: Config, say: Callable[[str], object], problem: Problem | None = None
) -> Evaluator:
    """The evaluator that `config` names, on the cluster of `config.engine`. Raises ConfigError and SetupError."""
    engine, name = config.engine, config.backend.name
    starts_here = engine.address is None
    if name == "auto":
        missing = why_no_gpu(ask=True) if starts_here else None
        name = "cuda" if missing is None else "emulator"
        if missing is not None:
            say(f"{missing}: kernels run in the emulator, times are predicted for {config.backend.target}")
    require_times(name, config.measure.objective)
    gpus = engine.gpus or 1
    if starts_here and name == "cuda":
        found = count_gpus()
        if found < gpus:
            asked = f"engine.gpus = {engine.gpus}: " if engine.gpus else ""
            raise SetupError(f"{asked}this host has {found} GPU{'s' * (found != 1)}", hint=_NO_GPU)
        gpus = found
    cluster = RayEngine(engine, gpus=gpus, workers=config.build.workers, say=say)
    if name == "replay":
        return ClusterReplay(config, cluster, say, problem)
    return LiveEvaluator(name, config, say, problem=problem, engine=cluster)


class ClusterReplay(ReplayEvaluator):
    """Points looked up in a recorded table by actors of a cluster, as if each had a GPU.

    What the table says is what `ReplayEvaluator` says: this is for trying what a cluster does with points. Each answer
    takes `pace_s`, as a device would.
    """

    def __init__(
        self,
        config: Config,
        cluster: RayEngine,
        say: Callable[[str], object] = lambda _: None,
        problem: Problem | None = None,
        *,
        pace_s: float = 0.0,
    ) -> None:
        self.capacity = 2 * cluster.count
        with contextlib.ExitStack() as undo:
            undo.callback(cluster.close)
            super().__init__(config.backend, config.measure.objective)
            path = Path(config.backend.path or "")
            table = table_message(path, config.backend.target, pace_s=pace_s)
            settings = ActorSettings("replay", config.backend.target, table=table)
            self._group = DeviceGroup(cluster.workers(settings), config.measure, say=say)
            undo.callback(self._group.close)
            if problem is not None:
                self.prepare(*problem)
            self._undo = undo.pop_all()

    def prepare(self, spec: KernelSpec, dims: Mapping[str, int], seed: int) -> None:
        super().prepare(spec, dims, seed)
        self._group.prepare(spec, dims, seed)

    def ready(self) -> None:
        self._group.ready()

    def submit(self, point: Point) -> Ticket:
        ticket = Ticket(point)
        self._group.submit(ticket)
        return ticket

    def baseline(self, library: str) -> Ticket:
        ticket = Ticket(None, library=library)
        self._group.submit(ticket)
        return ticket

    def finish(self, ticket: Ticket) -> Outcome:
        return ticket.outcome.result()

    def seconds(self) -> dict[str, Any]:
        return {
            "device_busy": self._group.busy_s(),
            "waiting_for_builds": 0.0,
            "phases": dict(self._group.phases_s),
        }

    def close(self) -> None:
        self._undo.close()
