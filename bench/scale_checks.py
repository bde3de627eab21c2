"""The simulation held against what it simulates: the real driver with devices that sleep, and recorded searches."""

from __future__ import annotations

import csv
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from bench_loop import DIMS, InstantWorld
from scale_driver import LOOKAHEAD, kernel, searched, seconds_a_row
from scale_simulation import Costs, Layout, simulate

from sweeper.backend.base import Outcome as Measured
from sweeper.device import target
from sweeper.evaluate import Ticket
from sweeper.model import KernelSpec, Point
from sweeper.resources.feasible import feasible_space

__all__ = ["check", "check_recorded"]

# What the start takes of a search that two GPUs serve: results/h200/README.md.
START_S = 1.0


class PacedWorld(InstantWorld):
    """Devices that sleep, one configuration at a time each, in the order that these were submitted in."""

    def __init__(self, spec: KernelSpec, devices: int, measure_s: float) -> None:
        super().__init__(spec)
        self.capacity = 2 + devices
        self._pool = ThreadPoolExecutor(devices)
        self._measure_s = measure_s
        self._lock = threading.Lock()
        self._running: dict[int, Future[None]] = {}

    def submit(self, point: Point) -> Ticket:
        ticket = super().submit(point)
        self._running[id(ticket)] = self._pool.submit(time.sleep, self._measure_s)
        return ticket

    def finish(self, ticket: Ticket) -> Measured:
        self._running.pop(id(ticket)).result()
        return super().finish(ticket)

    def close(self) -> None:
        self._pool.shutdown()


def check(search: str, *, points: int = 200, measure_s: float = 0.02) -> list[dict[str, Any]]:
    """The real driver with devices that sleep, beside what the simulation makes of it."""
    spec = kernel()
    space = feasible_space(spec, DIMS, target("h200"))
    found = []
    for devices, lookahead in ((1, 8), (2, 8), (4, 8), (16, 8), (16, 32)):
        with tempfile.TemporaryDirectory() as folder:
            world = PacedWorld(spec, devices, measure_s)
            began = time.monotonic()
            tally = searched(world, spec, space, Path(folder), points, lookahead, search)
            took = time.monotonic() - began
            world.close()
        thinking, store = seconds_a_row(tally)
        costs = Costs(thinking / 2, thinking / 2, store, 0.0, measure_s + 1e-4)
        layout = Layout(devices, 1, 1, points, lookahead, distinct=len(space))
        simulated = simulate(layout, costs)
        found.append(
            {
                "devices": devices,
                "lookahead": lookahead,
                "driver_ms": 1e3 * (thinking + store),
                "measured_per_s": points / took,
                "simulated_per_s": simulated.rate,
                "ratio": simulated.rate * took / points,
            }
        )
    return found


def check_recorded() -> list[dict[str, Any]]:
    """Searches that one and two H200s served (results/h200/throughput-two-gpus), with their own seconds."""
    with Path("results/h200/throughput-two-gpus.csv").open(encoding="utf-8") as file:
        recorded = {row["part"]: {k: row[k] for k in row} for row in csv.DictReader(file)}
    found = []
    for part, gpus in (("warm", 1), ("warm2", 2)):
        row = recorded[part]
        points = int(row["points"])
        own = {name: float(row[name]) / points for name in ("search_s", "store_s", "device_s")}
        costs = Costs(own["search_s"], 0.0, own["store_s"], 0.0, own["device_s"], prepare_s=START_S)
        layout = Layout(gpus, 1, 1, points, LOOKAHEAD, cached=True)
        rate = simulate(layout, costs).rate
        found.append(
            {
                "gpus": gpus,
                "measured_per_s": float(row["configurations_per_s"]),
                "simulated_per_s": rate,
                "ratio": rate / float(row["configurations_per_s"]),
            }
        )
    return found
