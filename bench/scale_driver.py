"""What a driver takes, measured on the real search and the real store without a device: `bench_scale.py` scales it."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parent))

from bench_loop import DIMS, Deaf, InstantWorld, Recorder

from sweeper.cli.export import export_folder
from sweeper.cli.merging import merge
from sweeper.device import target
from sweeper.kernel.description import load
from sweeper.model import KernelSpec, Trial
from sweeper.paths import conf_dir
from sweeper.problem import resolve
from sweeper.resources.feasible import feasible_space
from sweeper.search import Strategy, make
from sweeper.space import Space
from sweeper.store import Store
from sweeper.tune import Study, Tally, tune

__all__ = ["BUDGET", "LOOKAHEAD", "Driver", "driver", "kernel", "searched", "seconds_a_row"]

BUDGET, LOOKAHEAD = 50, 8
"""Configurations of a study, and how many of them are asked ahead."""


@dataclass(frozen=True)
class Driver:
    """Measured seconds of the command itself."""

    ask_s: float
    tell_s: float
    store_s: float
    compose_s: float
    merge_s: float
    export_s: float
    by_rows: dict[int, float]


def kernel() -> KernelSpec:
    path = conf_dir() / "kernel" / "register_tile.yaml"
    shared = yaml.safe_load((conf_dir() / "problem" / "gemm.yaml").read_text(encoding="utf-8"))
    node = yaml.safe_load(path.read_text(encoding="utf-8"))
    node.pop("defaults")
    return load({**shared, **node}, path)


def searched(
    world: InstantWorld,
    spec: KernelSpec,
    space: Space,
    folder: Path,
    points: int,
    lookahead: int,
    search: str,
) -> Tally:
    problem = resolve(spec, DIMS, spec.default_point, seed=0)
    study = Study(spec, DIMS, "large", 0, problem.flops, problem.bytes, world, {"cache": "cold"})
    with Store(folder / "study.db") as store:
        recorder = Recorder(store)
        recorder.number = len(store.trials())
        return tune(
            study,
            space,
            partial(strategy, search, space),
            recorder,
            Deaf(),
            budget=points,
            lookahead=lookahead,
        )


def strategy(search: str, space: Space) -> Strategy:
    return make(search, space, 0)


def seconds_a_row(tally: Tally) -> tuple[float, float]:
    """Of the driver: searching and all that it does beside storing; storing."""
    count = len(tally.trials)
    store = tally.seconds["store"] / count
    return (tally.seconds["total"] - tally.seconds["waiting"]) / count - store, store


def driver(search: str, *, rows: Sequence[int], repeat: int = 3) -> Driver:
    spec = kernel()
    space = feasible_space(spec, DIMS, target("h200"))
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place) / str(i) for i in range(repeat)]
        for folder in folders:
            folder.mkdir()
        told = []
        for folder in folders:
            began = time.process_time()
            tally = searched(InstantWorld(spec), spec, space, folder, BUDGET, LOOKAHEAD, search)
            told.append((time.process_time() - began) / BUDGET)
        thinking, store = min(told), storing_s(tally.trials, Path(place))
        by_rows = {}
        for count in rows:
            longer = Path(place) / f"rows-{count}"
            longer.mkdir()
            began = time.process_time()
            tally = searched(InstantWorld(spec), spec, space, longer, count, LOOKAHEAD, search)
            by_rows[len(tally.trials)] = (time.process_time() - began) / len(tally.trials)
        merge_s, export_s = gathering_s(tally.trials[:BUDGET], Path(place), 60 if repeat > 1 else 20)
    return Driver(thinking / 2, thinking / 2, store, composing_s(), merge_s, export_s, by_rows)


def storing_s(trials: Sequence[Trial], place: Path) -> float:
    """Seconds to make a row durable; of many the quickest tenth, since the machine may do other things meanwhile."""
    took = []
    with Store(place / "rows.db") as store:
        for trial in trials:
            began = time.monotonic()
            store.add(trial, begun=[trial.params])
            took.append(time.monotonic() - began)
    return statistics.quantiles(took, n=10)[0]


def gathering_s(trials: Sequence[Trial], place: Path, stores: int) -> tuple[float, float]:
    """Seconds a row to merge the stores of so many jobs, and to write the tables of them all."""
    paths = [place / f"job-{i}.db" for i in range(stores)]
    for i, path in enumerate(paths):
        with Store(path) as store:
            store.add_all(
                [replace(t, study=f"study-{i}", context=f"context-{i}", shape=f"{i}") for t in trials]
            )
    rows = len(trials) * stores
    with Store(place / "all.db") as into:
        began = time.process_time()
        merge(paths, into, ["python", "-m", "sweeper"])
        merged = time.process_time() - began
        (place / "tables").mkdir()
        # The first time pandas is loaded.
        export_folder(into, place / "tables")
        began = time.process_time()
        export_folder(into, place / "tables")
        return merged / rows, (time.process_time() - began) / rows


def composing_s(count: int = 5) -> float:
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        compose("config", ["kernel=register_tile"])
        began = time.process_time()
        for _ in range(count):
            compose("config", ["kernel=register_tile", "+shape=large"])
        return (time.process_time() - began) / count
