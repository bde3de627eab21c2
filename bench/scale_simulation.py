"""A discrete-event simulation of searches on many GPUs: drivers, compilers, devices, a store, each with its queue."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Costs", "Layout", "Outcome", "Resource", "simulate"]


@dataclass(frozen=True)
class Costs:
    """Seconds that the parts take: asking for and telling of a configuration, storing a row, building one on a core,
    measuring one; preparing a study on a device, its libraries, its confirmation, the start and end of a job."""

    ask_s: float
    tell_s: float
    store_s: float
    build_s: float
    measure_s: float
    prepare_s: float = 0.0
    libraries_s: float = 0.0
    confirm_s: float = 0.0
    job_s: float = 0.0


@dataclass(frozen=True)
class Layout:
    """`drivers` share the `studies`, each one study at a time, on `gpus` of hosts with `gpus_per_host` and
    `cores_per_gpu`. With `shared_store` every row goes through one server. Where `cached` a
    configuration, of a kernel that has `distinct` ones, is built once a host, and once in all for a single driver."""

    gpus: int
    drivers: int
    studies: int
    budget: int = 50
    lookahead: int = 8
    gpus_per_host: int = 8
    cores_per_gpu: int = 16
    distinct: int = 688
    cached: bool = True
    shared_store: bool = False


@dataclass(frozen=True)
class Outcome:
    """When all was done, and which share of that each kind of part was at work."""

    seconds: float
    configurations: int
    built: int
    gpu_share: float
    driver_share: float
    store_share: float
    core_share: float

    @property
    def rate(self) -> float:
        return self.configurations / self.seconds


@dataclass
class Resource:
    """`count` alike servers and those who wait for one, first come first served."""

    count: int
    free: int = field(init=False)
    waiting: deque[Any] = field(default_factory=deque)
    busy_s: float = 0.0

    def __post_init__(self) -> None:
        self.free = self.count


@dataclass
class Event:
    """Something that one process waits for and another brings about."""

    done: bool = False
    waiter: Any = None


Process = Generator[Any, None, None]


class Simulation:
    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Any, Any]] = []
        self._order = itertools.count()

    def start(self, process: Process) -> None:
        self._push(0.0, process, None)

    def fire(self, event: Event) -> None:
        event.done = True
        if event.waiter is not None:
            self._push(0.0, event.waiter, None)

    def run(self) -> float:
        while self._heap:
            self.now, _, process, held = heapq.heappop(self._heap)
            if held is not None:
                self._release(held)
            self._step(process)
        return self.now

    def _push(self, delay: float, process: Process, held: Resource | None) -> None:
        heapq.heappush(self._heap, (self.now + delay, next(self._order), process, held))

    def _step(self, process: Process) -> None:
        """Until the process waits: it yields an event, or a resource with the seconds that it holds it."""
        for wanted in process:
            if isinstance(wanted, Event):
                if wanted.done:
                    continue
                wanted.waiter = process
                return
            resource, seconds = wanted
            if resource.free:
                self._take(resource, seconds, process)
            else:
                resource.waiting.append((process, seconds))
            return

    def _take(self, resource: Resource, seconds: float, process: Process) -> None:
        resource.free -= 1
        resource.busy_s += seconds
        self._push(seconds, process, resource)

    def _release(self, resource: Resource) -> None:
        resource.free += 1
        if resource.waiting:
            process, seconds = resource.waiting.popleft()
            self._take(resource, seconds, process)


def simulate(layout: Layout, costs: Costs, seed: int = 0) -> Outcome:
    """Search all studies of `layout`, each configuration told in the order it was asked in."""
    world = _World(layout, costs, seed)
    simulation = world.simulation
    left = iter(range(layout.studies))
    for driver in range(layout.drivers):
        simulation.start(world.driver(driver, left))
    seconds = simulation.run()
    used = {
        "gpu": sum(gpu.busy_s for gpu in world.gpus) / layout.gpus,
        "core": sum(cores.busy_s for cores in world.cores) / sum(cores.count for cores in world.cores),
        "driver": sum(one.busy_s for one in world.thinking) / layout.drivers,
    }
    return Outcome(
        seconds,
        layout.studies * layout.budget,
        world.built,
        used["gpu"] / seconds,
        used["driver"] / seconds,
        world.store.busy_s / seconds if layout.shared_store else 0.0,
        used["core"] / seconds,
    )


class _World:
    def __init__(self, layout: Layout, costs: Costs, seed: int) -> None:
        self.simulation = Simulation()
        self.layout, self.costs = layout, costs
        # A driver of its own has a GPU of its own; one driver has all of them, as one pool.
        alone = layout.drivers > 1
        self.gpus = [Resource(1) for _ in range(layout.gpus)] if alone else [Resource(layout.gpus)]
        hosts = max(1, layout.gpus // layout.gpus_per_host)
        each = layout.cores_per_gpu * min(layout.gpus, layout.gpus_per_host)
        self.cores = [Resource(each) for _ in range(hosts)]
        # What one driver has built it sends to every host; drivers of their own share no more than a host does.
        self.cache: list[dict[int, Event]] = [{} for _ in range(hosts if alone else 1)]
        self.thinking = [Resource(1) for _ in range(layout.drivers)]
        self.store = Resource(1)
        self.built = 0
        self.random = random.Random(seed)  # noqa: S311

    def driver(self, number: int, studies: Iterator[int]) -> Process:
        for _ in studies:
            yield from self._study(number)

    def _study(self, number: int) -> Process:
        layout, costs = self.layout, self.costs
        gpu = self.gpus[number % len(self.gpus)]
        host = (number % layout.gpus) // layout.gpus_per_host % len(self.cores)
        # The device is held and does nothing that counts as work.
        yield Resource(1), costs.job_s
        yield gpu, costs.prepare_s + costs.libraries_s
        wanted = self.random.sample(range(layout.distinct), layout.budget)
        queue: deque[Event] = deque()
        asked = 0
        while True:
            while asked < layout.budget and len(queue) < layout.lookahead:
                yield self.thinking[number], costs.ask_s
                arrived = Event()
                where = host if layout.drivers > 1 else asked % len(self.cores)
                self.simulation.start(self._configuration(wanted[asked], gpu, where, arrived))
                queue.append(arrived)
                asked += 1
            if not queue:
                break
            yield queue.popleft()
            if layout.shared_store:
                yield self.thinking[number], costs.tell_s
                yield self.store, costs.store_s
            else:
                yield self.thinking[number], costs.tell_s + costs.store_s
        yield gpu, costs.confirm_s

    def _configuration(self, which: int, gpu: Resource, host: int, arrived: Event) -> Process:
        cache = self.cache[host % len(self.cache)]
        known = cache.get(which) if self.layout.cached else None
        if known is None:
            built = Event()
            cache[which] = built
            self.built += 1
            yield self.cores[host], self.costs.build_s
            built.done = True
        elif not known.done:
            # Another study is building it: that takes no core of its own, and as long at most.
            yield Resource(1), self.costs.build_s / 2
        yield gpu, self.costs.measure_s
        self.simulation.fire(arrived)
