"""What each arrangement comes to at each number of GPUs, and the table that says so."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from scale_driver import BUDGET, LOOKAHEAD, Driver
from scale_simulation import Costs, Layout, Outcome, simulate

from sweeper.plan.cost import JOB_S, LIBRARY_S, turns_s
from sweeper.recording import read_recorded

__all__ = ["ARRANGEMENTS", "Arrangement", "Row", "at_scale", "costs_of", "table"]

SHAPES = 10_000
# Preparing another problem in a process that has the device already: results/h200/pitfalls, total less busy.
PREPARE_S = 0.45
SPACES = Path("results/h200/spaces")
# 200 configurations by NVRTC took 42.6 s of a core, by nvcc 136.8 s: results/h200/throughput.csv.
NVRTC_S, NVCC_S = 42.6 / 200, 136.8 / 200


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
