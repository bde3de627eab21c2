"""What saturates first on 1, 8, 64 and 512 GPUs: `python bench/bench_scale.py [--out FOLDER] [--quick]`.

10 000 shapes of one kernel, 50 configurations each, simulated event by event: drivers ask and tell in order, hosts of
8 GPUs and 128 cores build, GPUs measure, a store takes rows. What a driver takes is measured here on the real search
and the real store, without a device; so are composing a job, merging stores and writing tables. What a device and a
compiler take is recorded (results/h200/spaces, results/h200/throughput.csv), and what a PostgreSQL server takes is an
argument (`bench/bench_store.py` measures it).

`--check` holds the simulation against the real driver with pretended devices, which sleep.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent))

from bench_loop import DIMS, Deaf, InstantWorld, Recorder
from scale_simulation import Costs, Layout, Outcome, simulate

from sweeper.atomic import atomic_write
from sweeper.backend.base import Outcome as Measured
from sweeper.cli.export import export_folder
from sweeper.cli.merging import merge
from sweeper.cli.session import feasible_space
from sweeper.device import target
from sweeper.evaluate import Ticket
from sweeper.kernel.description import load
from sweeper.model import KernelSpec, Point, Trial
from sweeper.paths import conf_dir
from sweeper.plan.cost import JOB_S, LIBRARY_S, turns_s
from sweeper.problem import resolve
from sweeper.recording import read_recorded
from sweeper.search import Strategy, make
from sweeper.space import Space
from sweeper.store import Store
from sweeper.tune import Study, Tally, tune

SHAPES, BUDGET, LOOKAHEAD = 10_000, 50, 8
SCALES = (1, 8, 64, 512)
# Preparing another problem in a process that has the device already: results/h200/pitfalls, total less busy.
PREPARE_S = 0.45
# What the start takes of a search that two GPUs serve: results/h200/README.md.
START_S = 1.0
SPACES = Path("results/h200/spaces")
# 200 configurations by NVRTC took 42.6 s of a core, by nvcc 136.8 s: results/h200/throughput.csv.
NVRTC_S, NVCC_S = 42.6 / 200, 136.8 / 200
# What 8 drivers wrote together into one PostgreSQL 15 server that shared two busy cores with them
# (`bench/bench_store.py`), and what is assumed of a server that has a machine to itself.
POSTGRESQL_ROWS_PER_S = (73.0, 1000.0)
# To make a row durable on a host with a GPU and a disk of its own: results/h200/rungs-large/run.json, register_tile.
STORE_MS = 1.9


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


def recorded_s(name: str) -> tuple[float, float, float]:
    """Means of a recorded space: seconds of a core to build, of a device to measure, of a launch."""
    rows = [row for row in read_recorded(SPACES / name) if row.measure_s and row.build_s]
    return (
        statistics.mean(row.build_s or 0.0 for row in rows),
        statistics.mean(row.measure_s or 0.0 for row in rows),
        statistics.mean(statistics.median(row.samples_ms) for row in rows if row.samples_ms) / 1e3,
    )


@dataclass(frozen=True)
class Arrangement:
    name: str
    drivers_per_gpu: float
    cached: bool = True
    rows_per_s: float | None = None
    persistent: bool = False


ARRANGEMENTS = (
    Arrangement("one driver, one study after another, lookahead 8", 0, persistent=True),
    Arrangement("a driver a GPU (multirun), stores of their own", 1),
    Arrangement("a driver a GPU that stays (shapes=), stores of their own", 1, persistent=True),
    Arrangement("the same, nothing cached, nvcc", 1, cached=False, persistent=True),
)


def costs_of(one: Arrangement, own: Driver, space: str, store_s: float) -> Costs:
    build_s, measure_s, launch_s = recorded_s(space)
    return Costs(
        ask_s=own.ask_s,
        tell_s=own.tell_s,
        store_s=1 / one.rows_per_s if one.rows_per_s else store_s,
        build_s=build_s if one.cached else max(build_s, NVCC_S),
        measure_s=measure_s,
        prepare_s=PREPARE_S,
        # A process that stays has its libraries loaded, and races them again.
        libraries_s=2 * (0.1 if one.persistent else LIBRARY_S),
        confirm_s=turns_s(7, 12, launch_s, 3 * 4 * 2048**2),
        job_s=0.0 if one.persistent else JOB_S,
    )


@dataclass(frozen=True)
class Row:
    arrangement: str
    gpus: int
    hours: float
    gpu_hours: float
    rows_per_s: float
    gpu_share: float
    driver_share: float
    store_share: float
    core_share: float
    compose_s: float
    gather_s: float
    first: str


def at_scale(one: Arrangement, gpus: int, costs: Costs, own: Driver, *, most: int) -> Row:
    drivers = max(1, round(gpus * one.drivers_per_gpu))
    # Once all are at work and have built what they need nothing changes: the rest is as quick as this part.
    studies = min(SHAPES, max(most, 10 * drivers))
    layout = Layout(
        gpus, drivers, studies, BUDGET, LOOKAHEAD, cached=one.cached, shared_store=one.rows_per_s is not None
    )
    outcome = simulate(layout, costs)
    seconds = outcome.seconds * SHAPES / studies
    jobs = SHAPES if not one.persistent else drivers
    compose_s = jobs * own.compose_s
    rows = SHAPES * BUDGET
    gather_s = rows * (own.export_s + (0.0 if one.rows_per_s or drivers == 1 else own.merge_s))
    return Row(
        one.name,
        gpus,
        seconds / 3600,
        seconds * gpus / 3600,
        outcome.configurations / outcome.seconds,
        outcome.gpu_share,
        outcome.driver_share,
        outcome.store_share,
        outcome.core_share,
        compose_s,
        gather_s,
        first_of(outcome, layout, costs, compose_s + gather_s, seconds),
    )


def first_of(outcome: Outcome, layout: Layout, costs: Costs, serial_s: float, seconds: float) -> str:
    """What keeps it from being quicker."""
    shares = {
        "store": outcome.store_share,
        "driver": outcome.driver_share,
        "builds": outcome.core_share,
        "GPUs": outcome.gpu_share,
    }
    name, share = max(shares.items(), key=lambda pair: pair[1])
    if serial_s > seconds:
        return "the command: composing and gathering take longer than the search"
    if share >= 0.7:
        return name
    if outcome.core_share * layout.cores_per_gpu > 0.6 * layout.lookahead:
        return f"builds: the lookahead asks for {layout.lookahead} at once, of {layout.cores_per_gpu} cores"
    if layout.drivers < layout.gpus and layout.lookahead < layout.gpus:
        return f"lookahead: {layout.lookahead} under way for {layout.gpus} GPUs"
    thinking = layout.budget * (costs.ask_s + costs.tell_s + costs.store_s)
    beside = costs.job_s + costs.prepare_s + costs.libraries_s + costs.confirm_s
    measuring = layout.budget * costs.measure_s
    if layout.drivers < layout.gpus:
        return (
            f"one study at a time: {beside + thinking:.1f} s of each are the driver's, its start and its end"
        )
    if beside > measuring:
        return f"a study's start and end, {beside:.1f} s beside {measuring:.1f} s of measuring"
    return f"nothing: {name} at {share:.0%}"


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


def table(
    rows: Sequence[Row],
    own: Driver,
    checked: Sequence[dict[str, Any]],
    recorded: Sequence[dict[str, Any]],
    search: str,
    store_ms: float,
) -> str:
    by_rows = "; ".join(f"{1e3 * s:.1f} ms over {count}" for count, s in own.by_rows.items())
    lines = [
        (
            f"{SHAPES:,} shapes of {BUDGET} configurations, `search={search}`. Measured here, where other things ran"
            f" too: {1e3 * (own.ask_s + own.tell_s):.1f} ms of a processor to ask and tell in a search of {BUDGET}"
            f" ({by_rows}) and {1e3 * own.store_s:.1f} ms to store a configuration (simulated: {store_ms:.1f} ms),"
            f" {1e3 * own.compose_s:.0f} ms to compose a job, {1e6 * own.merge_s:.0f} µs to merge a row and"
            f" {1e6 * own.export_s:.0f} µs to export it."
        ),
        "",
        (
            "| arrangement | GPUs | hours | GPU-hours | configurations/s | GPUs work | driver | store | cores"
            " | composing, min | gathering, min | first |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.arrangement} | {r.gpus} | {r.hours:.2f} | {r.gpu_hours:.0f} | {r.rows_per_s:.0f} | {r.gpu_share:.0%}"
        f" | {r.driver_share:.0%} | {r.store_share:.0%} | {r.core_share:.0%} | {r.compose_s / 60:.1f}"
        f" | {r.gather_s / 60:.1f} | {r.first} |"
        for r in rows
    ]
    if checked:
        lines += [
            "",
            "| pretended devices | lookahead | driver, ms a configuration | configurations/s | simulated | ratio |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {c['devices']} | {c['lookahead']} | {c['driver_ms']:.1f} | {c['measured_per_s']:.1f}"
            f" | {c['simulated_per_s']:.1f} | {c['ratio']:.2f} |"
            for c in checked
        ]
    lines += ["", "| H200s | configurations/s, recorded | simulated | ratio |", "|---|---|---|---|"]
    lines += [
        f"| {c['gpus']} | {c['measured_per_s']:.1f} | {c['simulated_per_s']:.1f} | {c['ratio']:.2f} |"
        for c in recorded
    ]
    return "\n".join(lines) + "\n"


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--search", default="guided")
    parser.add_argument("--space", default="register_tile-2048.csv.gz", help="recorded seconds")
    parser.add_argument(
        "--postgresql",
        type=float,
        nargs="*",
        default=POSTGRESQL_ROWS_PER_S,
        metavar="ROWS/S",
        help="what servers take",
    )
    parser.add_argument(
        "--store-ms", type=float, default=STORE_MS, help="a row into a file of the host's own"
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--quick", action="store_true", help="fewer rows and studies")
    parser.add_argument("--out", type=Path, help="folder for scale.md, scale.csv and scale.json")
    chosen = parser.parse_args(given)
    began = datetime.now(UTC)
    own = driver(chosen.search, rows=(100,) if chosen.quick else (300,), repeat=1 if chosen.quick else 3)
    rows, used = [], {}
    servers = [
        Arrangement(f"a driver a GPU, one PostgreSQL server that takes {rate:g} rows/s", 1, rows_per_s=rate)
        for rate in chosen.postgresql
    ]
    for one in (*ARRANGEMENTS, *servers):
        costs = costs_of(one, own, chosen.space, chosen.store_ms / 1e3)
        used[one.name] = costs
        for gpus in SCALES[:2] if chosen.quick else SCALES:
            rows.append(at_scale(one, gpus, costs, own, most=20 if chosen.quick else 200))
            print(rows[-1], flush=True)
    checked = check(chosen.search, points=60 if chosen.quick else 200) if chosen.check else []
    recorded = check_recorded()
    text = table(rows, own, checked, recorded, chosen.search, chosen.store_ms)
    print(text)
    if chosen.out is not None:
        chosen.out.mkdir(parents=True, exist_ok=True)
        atomic_write(chosen.out / "scale.md", text.encode())
        with (chosen.out / "scale.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(asdict(rows[0])), lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(row) for row in rows)
        from sweeper.provenance import run_record

        record = run_record(
            command=["python", "bench/bench_scale.py", *(given if given is not None else sys.argv[1:])],
            config={k: str(v) for k, v in vars(chosen).items()},
            started=began,
            facts={
                "driver": {**asdict(own), "by_rows": {str(k): v for k, v in own.by_rows.items()}},
                "costs": {one.name: asdict(used[one.name]) for one in (*ARRANGEMENTS, *servers)},
                "check": checked,
                "check_recorded": recorded,
            },
        )
        atomic_write(chosen.out / "scale.json", (json.dumps(record, indent=2, default=str) + "\n").encode())


if __name__ == "__main__":
    main()
