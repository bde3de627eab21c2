"""A cluster as a search sees it: workers for its GPUs, a builder for its processors, and an end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sweeper.build.pool import Builder
from sweeper.cluster.builder import ClusterBuilder
from sweeper.cluster.connection import Connection
from sweeper.cluster.settings import EngineConfig
from sweeper.cluster.worker import ActorSettings, ClusterWorker

__all__ = ["RayEngine"]

# What a GPU can keep busy, with room: builds take a processor a second or two, measuring a tenth of one.
_BUILDS_A_GPU = 32
_LEAST_BUILDS, _MOST_BUILDS = 64, 1024


class RayEngine:
    """The cluster that `engine` names, joined, or started with `gpus` GPUs, real or pretended.

    `count` GPUs serve; `slots` builds run at once, `workers` where that is not 0. Raises SetupError.
    """

    def __init__(
        self,
        engine: EngineConfig,
        *,
        gpus: int,
        workers: int = 0,
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._engine = engine
        self._say = say
        self.connection = Connection(engine.address, gpus=gpus, cpus=engine.cpus)
        try:
            self.count = self.connection.gpus(engine.gpus, engine.accelerator)
            most = min(max(_LEAST_BUILDS, _BUILDS_A_GPU * self.count), _MOST_BUILDS)
            self.slots = workers or min(most, engine.cpus or most, max(1, self.connection.processors()))
        except BaseException:
            self.close()
            raise

    def workers(self, settings: ActorSettings) -> list[ClusterWorker]:
        """An actor for each GPU that serves, not waited for."""
        options: dict[str, Any] = (
            {"resources": {f"accelerator_type:{self._engine.accelerator}": 0.001}}
            if self._engine.accelerator
            else {}
        )
        return [
            ClusterWorker(self.connection.ray, settings, ordinal, options=options, say=self._say)
            for ordinal in range(self.count)
        ]

    def builder(self, backend: str, compiler: str, *, cache: bool) -> Builder:
        """What builds on the nodes. Raises ConfigError for a compiler that cannot build for `backend`."""
        return ClusterBuilder(self.connection, backend, compiler, cache=cache, say=self._say)

    def close(self) -> None:
        """Leave the cluster, or end it where it was started here."""
        self.connection.close()
