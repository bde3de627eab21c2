"""What the loop itself costs a configuration: `python bench/bench_loop.py [--points N] [--search NAME]`.

Everything but the waiting is real: the space, the search, the store with its synchronised commits, and the
rendering of each configuration's source. Builds and devices answer at once. Printed are milliseconds a
configuration by part, of wall-clock and of processor time.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from sweeper.backend.base import Outcome
from sweeper.build.source import translation_unit
from sweeper.device import DeviceIdentity, target
from sweeper.evaluate import Ticket, why_pruned
from sweeper.kernel.description import load
from sweeper.model import Build, Check, KernelSpec, Point, Role, TimeSource, Timing, Trial
from sweeper.paths import conf_dir
from sweeper.problem import resolve
from sweeper.resources.feasible import feasible_space
from sweeper.search import make
from sweeper.store import Store
from sweeper.tune import Study, tune

DIMS = {"M": 4096, "N": 4096, "K": 4096}
RIGHT = Check(passed=True, checked=4096**2, wrong=0, max_error=1e-6, error_ratio=0.1, error_index=(3, 4))


class InstantWorld:
    """Builds and devices that answer at once; what is done for them in this process is done."""

    backend = "cuda"
    compiler = "nvcc 13.0.88"
    time_source = TimeSource.MEASURED
    capacity = 8
    spare_builders = 0

    def __init__(self, spec: KernelSpec) -> None:
        self._spec = spec
        self.target = target("h200")
        self.identity = DeviceIdentity("NVIDIA H200", uuid="GPU-0", driver="580")
        self.devices = [self.identity]

    def prepare(self, spec: KernelSpec, dims: Any, seed: int) -> None: ...

    def ready(self) -> None: ...

    def build_ahead(self, points: Sequence[Point]) -> None: ...

    def submit(self, point: Point) -> Ticket:
        unit = translation_unit(self._spec, point)
        build: Future[Build] = Future()
        build.set_result(
            Build(unit.digest, "nvcc", Path("/cache/kernel.cubin"), unit.entry, self.compiler, registers=64)
        )
        why_pruned(self._spec, point, DIMS, self.target, build.result())
        return Ticket(point, build, device=self.identity)

    def baseline(self, library: str) -> Ticket:
        raise AssertionError(f"nobody asks for {library} here")

    def seen(self, time_ms: float) -> None: ...

    def finish(self, ticket: Ticket) -> Outcome:
        assert ticket.point is not None
        assert ticket.build is not None
        value = 1.0 + sum(map(hash, ticket.point.params.values())) % 97 / 97
        samples = tuple(value * (1 + i / 1000) for i in range(20))
        return Outcome(RIGHT, ticket.build.result(), None, Timing(samples, "events", "cold"))

    def seconds(self) -> dict[str, Any]:
        return {"device_busy": [], "waiting_for_builds": 0.0, "phases": {}}

    def close(self) -> None: ...


class Recorder:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.number = 0

    def find(self, params: Any, role: Role) -> Trial | None:
        del params, role
        return None

    def add(self, trial: Trial) -> Trial:
        self.number += 1
        return self.store.add(replace(trial, number=self.number))


class Deaf:
    def finished(self, trial: Trial, *, reused: bool) -> None: ...


def main(given: Sequence[str] | None = None) -> None:
    """Print, for each search, the milliseconds that every part of the loop takes of a configuration."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--search", default="random,tpe,bayes")
    parser.add_argument("--profile", action="store_true")
    chosen = parser.parse_args(given)
    path = conf_dir() / "kernel" / "register_tile.yaml"
    shared = yaml.safe_load((conf_dir() / "problem" / "gemm.yaml").read_text(encoding="utf-8"))
    node = yaml.safe_load(path.read_text(encoding="utf-8"))
    node.pop("defaults")
    spec = load({**shared, **node}, path)
    space = feasible_space(spec, DIMS, target("h200"))
    problem = resolve(spec, DIMS, spec.default_point, seed=0)
    for name in chosen.search.split(","):
        world = InstantWorld(spec)
        study = Study(spec, DIMS, "large", 0, problem.flops, problem.bytes, world, {"cache": "cold"})
        with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "study.db") as store:
            profile = cProfile.Profile()
            began = time.process_time()
            if chosen.profile:
                profile.enable()
            tally = tune(
                study,
                space,
                partial(make, name, space, 0),
                Recorder(store),
                Deaf(),
                budget=chosen.points,
                lookahead=8,
            )
            profile.disable()
            processor_s = time.process_time() - began
            if chosen.profile:
                pstats.Stats(profile).sort_stats("cumulative").print_stats(35)
        count = len(tally.trials)
        parts = {k: v for k, v in tally.seconds.items() if isinstance(v, float) and k != "waiting_for_builds"}
        parts["rest"] = parts["total"] - sum(v for k, v in parts.items() if k != "total")
        told = ", ".join(f"{k} {1e3 * v / count:.2f}" for k, v in parts.items())
        print(f"{name}: {count} of {len(space)} points; ms a configuration: {told}; "
              f"processor {1e3 * processor_s / count:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
