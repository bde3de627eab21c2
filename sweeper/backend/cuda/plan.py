"""What one sample is made of: one launch, a batch of them, or a graph of many.

A launch of 10 µs and more is timed by itself. Shorter ones share an interval, so that the events' resolution
(32 ns on an H200) is a small part of it: below `graph_below_ms` as a graph, whose launches the device takes
without the host's help and with a shorter gap between them, else as a batch.

Cold launches of one interval each have a copy of the arrays of their own, and all copies are flushed from
the L2 cache beforehand. Where the memory does not hold so many, a graph goes round over fewer copies, as
long as those between two uses of one are more than twice the L2 cache; else it has fewer launches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from sweeper.backend.base import MeasureProtocol
from sweeper.backend.cuda.arguments import ArgumentSets, allocated_bytes
from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.graph import Graph, GraphError, Graphs
from sweeper.backend.cuda.sampler import Queue
from sweeper.backend.cuda.verification import Launcher
from sweeper.errors import TrialFailed

__all__ = ["INTERVAL_MS", "Plan", "Planner"]

INTERVAL_MS = 0.1
"""How long an interval is that several launches share."""

_ALONE_MS = 0.01

_MOST_BATCHED = 32
_MOST_GRAPHED = 64


@dataclass(slots=True)
class Plan:
    """`queue` is what lies between the events, `launches` how many launches it is; `ready` comes before it.

    `cache` is the state of L2 that `ready` brings about. Use as a context manager: a graph is given back.
    """

    queue: Queue
    ready: Queue
    launches: int
    method: str
    cache: str
    note: str = ""
    graph: Graph | None = None

    @property
    def flushes(self) -> bool:
        return self.cache == "cold"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.graph is not None:
            self.graph.close()


class Planner:
    """Plans the samples of one launcher; `flush` queues what empties an L2 cache of `l2_bytes`."""

    def __init__(self, device: CudaDevice, graphs: Graphs, flush: Queue, *, l2_bytes: int) -> None:
        self._device = device
        self._graphs = graphs
        self._flush = flush
        self._l2_bytes = l2_bytes

    def single(self, launch: Launcher, sets: ArgumentSets, cache: str) -> Plan:
        """One launch a sample."""
        queue = _queue(launch, sets, 0)
        return Plan(queue, self._ready(queue, sets, cache), 1, "events", cache)

    def plan(
        self, launch: Launcher, sets: ArgumentSets, cache: str, protocol: MeasureProtocol, single_ms: float
    ) -> Plan:
        """As many launches a sample as a launch of `single_ms` needs."""
        plan = self.single(launch, sets, cache)
        if sets.first.accumulates or single_ms >= max(_ALONE_MS, protocol.graph_below_ms):
            return plan
        if single_ms < protocol.graph_below_ms:
            try:
                return self._graph(plan, launch, sets, single_ms)
            except (GraphError, TrialFailed, self._device.drv.Error) as error:
                plan.note = f"no graph of so short a kernel: {error}"
        if single_ms >= _ALONE_MS:
            return plan
        wanted = _launches(single_ms, _MOST_BATCHED)
        plan.launches = sets.provide(wanted) if plan.flushes else wanted
        queues = [_queue(launch, sets, n if plan.flushes else 0) for n in range(plan.launches)]
        plan.queue = _all(queues)
        if plan.launches > 1:
            plan.method = f"events×{plan.launches}"
        return plan

    def empty(self, plan: Plan) -> Plan:
        """As many launches of a kernel that does nothing, in the same way; may raise GraphError."""
        queue, graph = _all([self._device.code.nothing] * plan.launches), None
        if plan.graph is not None:
            graph = self._graphs.record(queue)
            queue = graph.launch
        return Plan(queue, self._flush, plan.launches, plan.method, "cold", graph=graph)

    def _graph(self, plan: Plan, launch: Launcher, sets: ArgumentSets, single_ms: float) -> Plan:
        launches, copies = _launches(single_ms, _MOST_GRAPHED), 1
        if plan.flushes:
            copies = sets.provide(launches)
            if copies < launches and not self._goes_round(sets, copies):
                launches = copies
        queues = [_queue(launch, sets, n % copies) for n in range(launches)]
        graph = self._graphs.record(_all(queues))
        try:
            # The first replay has costs of its own, and shows whether there can be a second.
            graph.launch()
        except GraphError:
            graph.close()
            raise
        method = f"graph×{launches}" + (f" over {copies} copies" if plan.flushes else "")
        return Plan(graph.launch, plan.ready, launches, method, plan.cache, graph=graph)

    def _goes_round(self, sets: ArgumentSets, copies: int) -> bool:
        """Whether a copy has left the L2 cache by the time that it comes to it again."""
        return (copies - 1) * allocated_bytes(sets.first.problem) > 2 * self._l2_bytes

    def _ready(self, queue: Queue, sets: ArgumentSets, cache: str) -> Queue:
        """What brings cache and arrays into the state in which a sample begins."""

        def ready() -> None:
            sets.first.refill()
            if cache == "cold":
                self._flush()
            elif not sets.first.accumulates:
                queue()

        return ready


def _queue(launch: Launcher, sets: ArgumentSets, number: int) -> Queue:
    """A launch on the set of arguments of that number."""
    arguments = sets[number]
    return lambda: launch(arguments)


def _all(queues: list[Queue]) -> Queue:
    def run() -> None:
        for queue in queues:
            queue()

    return run


def _launches(single_ms: float, most: int) -> int:
    return min(most, math.ceil(INTERVAL_MS / max(single_ms, 1e-6)))
