"""What the dispatcher's answer costs at shapes that were not tuned: python bench/bench_dispatch.py measure|judge …

    measure TABLE… [--shapes MxNxK,…] [--seconds 80] [--out FOLDER]           on a GPU
    judge TABLE… --cross FOLDER/dispatch-cross.csv [--out FOLDER]             anywhere

`measure` times every configuration that the tables name as the best of a shape at every other shape where it is
feasible, each proved right, and writes dispatch-cross.csv, which is a table of shapes as any other. `judge` leaves
out one shape after another, lets the dispatcher choose from the best of the others, and looks up what the choice
took: its price is its time over the least of the shape. Rival ways to choose stand beside it. Writes
dispatch.md beside the table.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from shapes_table import geometric_mean
from shapes_worker import MEASURE

from sweeper.config import BackendConfig, BuildConfig, Config, ShapeConfig
from sweeper.device import target
from sweeper.device.present import why_no_gpu
from sweeper.dispatch.choose import Guess, Judge, distance, guesses
from sweeper.dispatch.entry import Entry
from sweeper.dispatch.feasible import Feasibility
from sweeper.dispatch.read import read_entries
from sweeper.errors import TrialFailed
from sweeper.evaluate import LiveEvaluator
from sweeper.kernel.sizes import parse_shape
from sweeper.model import Point

COLUMNS = ("shape", "dtype", "kernel", "params", "timed", "time_ms", "device", "device_uuid")
Rows = list[dict[str, Any]]


def distinct(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """An entry for each configuration, by kernel."""
    found: dict[str, Entry] = {}
    for entry in entries:
        found.setdefault(entry.configuration, entry)
    kernels: dict[str, list[Entry]] = {}
    for entry in found.values():
        kernels.setdefault(entry.kernel, []).append(entry)
    return kernels


def measured(
    world: LiveEvaluator, feasibility: Feasibility, kernels: dict[str, list[Entry]], shape: str
) -> Rows:
    """The time of every configuration that can run at `shape`."""
    dims, _ = parse_shape(shape)
    rows: Rows = []
    for kernel, entries in kernels.items():
        able = [e for e in entries if feasibility.judge(e, dims, world.target)[0] is None]
        if not able:
            continue
        spec = feasibility.kernel(able[0])
        if isinstance(spec, str):
            raise AssertionError("it was found feasible")
        world.prepare(spec, dims, 42)
        names = [param.name for param in spec.params]
        points = [Point(tuple((name, entry.params[name]) for name in names)) for entry in able]
        tickets = [world.submit(point) for point in points]
        try:
            world.ready()
        except TrialFailed:
            continue
        for entry, ticket in zip(able, tickets, strict=True):
            try:
                outcome = world.finish(ticket)
            except TrialFailed as failure:
                print(f"  {shape} {kernel}: {failure.reason}", flush=True)
                continue
            if outcome.timing is not None:
                rows.append(
                    {
                        "shape": shape,
                        "dtype": entry.dtype,
                        "kernel": kernel,
                        "params": json.dumps(dict(entry.params), sort_keys=True),
                        "timed": "in the search",
                        "time_ms": statistics.median(outcome.timing.samples_ms),
                        "device": world.identity.name,
                        "device_uuid": world.identity.uuid,
                    }
                )
    return rows


def measure(chosen: argparse.Namespace) -> int:
    missing = why_no_gpu(ask=True)
    if missing:
        print(f"{missing}: configurations are measured on a GPU", file=sys.stderr)
        return 3
    began = time.monotonic()
    entries = read_entries(chosen.tables)
    shapes = chosen.shapes.split(",") if chosen.shapes else list(dict.fromkeys(map(_shape, entries)))
    config = Config(
        kernel={},
        shape=ShapeConfig(None, {}),
        measure=MEASURE,
        backend=BackendConfig(name="cuda"),
        build=BuildConfig(compiler="nvrtc", workers=chosen.builders or 0),
    )
    rows: Rows = []
    path: Path = chosen.out / "dispatch-cross.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    feasibility = Feasibility()
    with closing(LiveEvaluator("cuda", config, print)) as world:
        for shape in shapes:
            if time.monotonic() - began > chosen.seconds:
                print(f"no time was left for {shape}", flush=True)
                continue
            found = measured(world, feasibility, distinct(entries), shape)
            rows += found
            with path.open("w", newline="", encoding="utf-8") as file:
                lines = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                lines.writeheader()
                lines.writerows(rows)
            print(f"{shape}: {len(found)} configurations, {time.monotonic() - began:.1f} s", flush=True)
    return 0


def judged(entries: Sequence[Entry], cross: Sequence[Entry]) -> list[dict[str, Any]]:
    """For every shape of `cross` that the tables have, the price of each way to choose without its own rows."""
    took: dict[tuple[str, str], float] = {}
    for entry in cross:
        took[_shape(entry), entry.configuration] = entry.time_ms
    shapes = dict.fromkeys(shape for shape, _ in took)
    limits = target(entries[0].device)
    rows = []
    feasibility = Feasibility()

    def judge(entry: Entry, dims: Mapping[str, int]) -> tuple[str | None, float | None]:
        return feasibility.judge(entry, dims, limits)

    for shape in shapes:
        dims, _ = parse_shape(shape)
        others = [entry for entry in entries if _shape(entry) != shape]
        best = min(time_ms for (at, _), time_ms in took.items() if at == shape)
        ways = {"dispatcher": guesses(others, dims, judge), **_rivals(others, dims, judge)}
        row: dict[str, Any] = {"shape": shape, "best": best}
        for name, ranked in ways.items():
            known = [guess for guess in ranked if (shape, guess.entry.configuration) in took]
            row[name] = took[shape, known[0].entry.configuration] / best if known else math.nan
        rows.append(row)
    return rows


def _rivals(entries: Sequence[Entry], dims: Mapping[str, int], judge: Judge) -> dict[str, list[Guess]]:
    """Simpler ways to choose: what won at the nearest shape, what the static model alone thinks fastest, and what
    its operations a second elsewhere make of it."""
    able = [entry for entry in entries if judge(entry, dims)[0] is None]
    by_shape = sorted(able, key=lambda entry: (distance(entry.dims, dims), entry.time_ms))
    by_model = sorted(able, key=lambda entry: judge(entry, dims)[1] or math.inf)
    work = math.prod(dims.values())
    by_rate = sorted(able, key=lambda entry: entry.time_ms * work / math.prod(entry.dims.values()))
    named = {"nearest shape": by_shape, "model alone": by_model, "best rate": by_rate}
    return {name: [Guess(e, 0.0, 0.0, False) for e in ranked] for name, ranked in named.items()}


def report(rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table of the prices, and what they come to."""
    ways = [name for name in rows[0] if name not in ("shape", "best")]
    lines = [f"| left out | best, ms | {' | '.join(ways)} |", "|---" * (len(ways) + 2) + "|"]
    for row in rows:
        prices = " | ".join(f"{row[way]:.3f}" for way in ways)
        lines.append(f"| {row['shape'].replace('x', '×')} | {row['best']:.4g} | {prices} |")
    for name, of in (("geometric mean", geometric_mean), ("largest", max)):
        sums = [of([row[way] for row in rows if not math.isnan(row[way])]) for way in ways]
        lines.append(f"| {name} | | {' | '.join(f'{value:.3f}' for value in sums)} |")
    return "\n".join(lines) + "\n"


def _shape(entry: Entry) -> str:
    return "x".join(str(entry.dims[name]) for name in "MNK")


def main(given: Sequence[str] | None = None) -> int:
    """Measure on a GPU, or judge what was measured and write dispatch.md. Gives the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("measure", "judge"))
    parser.add_argument("tables", type=Path, nargs="+")
    parser.add_argument("--shapes")
    parser.add_argument("--seconds", type=float, default=80.0, help="begin no shape after this long")
    parser.add_argument("--builders", type=int)
    parser.add_argument("--out", type=Path, default=Path("results/h200"))
    parser.add_argument("--cross", type=Path)
    chosen = parser.parse_args(given)
    if chosen.what == "measure":
        return measure(chosen)
    if chosen.cross is None:
        parser.error("judge needs --cross FOLDER/dispatch-cross.csv")
    text = report(judged(read_entries(chosen.tables), read_entries([chosen.cross])))
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "dispatch.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
