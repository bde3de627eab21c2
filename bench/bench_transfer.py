"""What is known of neighbouring conditions, by replay: how soon the default search is close to the best with it.

python bench/bench_transfer.py TARGET FROM… [--seeds N] [--known N]
    Searches the recorded space TARGET, without and with the tables FROM (other shapes, classes or GPUs, the nearest
    first). With --known each of them holds only what a search of N evaluations has measured there.

python bench/bench_transfer.py --searched
    The searched configurations of every kernel at some 40 shapes (results/h200/shapes/*-searched.csv): each shape is
    searched again among its own, knowing the nearest three other shapes; beside it random order, in expectation.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sweeper.benchmark.figures import expected_random
from sweeper.benchmark.recorded_space import RecordedSpace, load_space, space_from
from sweeper.benchmark.replayed import replay_rows
from sweeper.cli.estimates import from_times
from sweeper.model import Role, Stage, Status
from sweeper.recording import Recorded
from sweeper.search import Strategy, make

SEARCHED = sorted((Path(__file__).parents[1] / "results" / "h200" / "shapes").glob("*-searched.csv"))
POINTS = (1, 5, 10, 25, 50)
FEW = (1, 2, 4)
NEAREST = 3
LEAST_SHAPES, LEAST_POINTS = 5, 5

Floats = npt.NDArray[np.float64]


def asked_rows(recorded: RecordedSpace, search: Strategy, evaluations: int) -> list[int]:
    rows: list[int] = []
    while len(rows) < min(evaluations, len(recorded.space)):
        (row,) = search.ask(1)
        rows.append(row)
        time = float(recorded.times_ms[row])
        search.tell(row, None if math.isnan(time) else time)
    return rows


def times_in(recorded: RecordedSpace, other: RecordedSpace, rows: Sequence[int]) -> Floats | None:
    """What `rows` of `other` say of the points of `recorded`."""
    times = [(other.space.point(row).params, float(other.times_ms[row])) for row in rows]
    return from_times(recorded.space, ((p, None if math.isnan(ms) else ms) for p, ms in times))


def percents(recorded: RecordedSpace, seed: int, measured: Sequence[Floats], at: Sequence[int]) -> Floats:
    search = make("guided", recorded.space, seed, measured=measured)
    found = replay_rows(recorded, asked_rows(recorded, search, at[-1])).percent
    return np.array([found[min(n, len(found)) - 1] for n in at])


def told(found: Floats) -> str:
    return " | ".join(
        f"{m:.1f} ({p:.1f})"
        for m, p in zip(np.median(found, axis=0), np.percentile(found, 10, axis=0), strict=True)
    )


def compare(target: Path, sources: Sequence[Path], seeds: int, known: int | None) -> None:
    recorded, others = load_space(target), [load_space(path) for path in sources]
    print(f"| {recorded.name} | {' | '.join(f'@{n}' for n in POINTS)} |")
    print(f"|---|{'---|' * len(POINTS)}")
    for label, nearest in (("alone", []), ("with " + ", ".join(one.name for one in others), others)):
        runs = []
        for seed in range(seeds):
            measured = []
            for other in nearest:
                rows = range(len(other.space))
                chosen = asked_rows(other, make("guided", other.space, seed), known) if known else rows
                times = times_in(recorded, other, chosen)
                measured += [] if times is None else [times]
            runs.append(percents(recorded, seed, measured, POINTS))
        print(f"| {label} | {told(np.array(runs))} |", flush=True)


def searched() -> None:
    print(
        f"| kernel | shapes | {' | '.join(f'@{n}' for n in FEW)} | random: {', '.join(f'@{n}' for n in FEW)} |"
    )
    print(f"|---|---|{'---|' * len(FEW)}---|")
    everything, chance = [], []
    for path in SEARCHED:
        for (kernel, dtype), shapes in tables_of(path).items():
            if len(shapes) < LEAST_SHAPES:
                continue
            found, expected = [], []
            for shape, recorded in shapes.items():
                others = sorted((s for s in shapes if s != shape), key=lambda s: away(shape, s))
                known = (times_in(recorded, shapes[s], range(len(shapes[s].space))) for s in others)
                measured = list(itertools.islice((times for times in known if times is not None), NEAREST))
                if measured and len(recorded.space) >= LEAST_POINTS:
                    found.append(percents(recorded, 0, measured, FEW))
                    expected.append(
                        100 * recorded.best_ms / expected_random(recorded, FEW[-1])[[n - 1 for n in FEW]]
                    )
            if found:
                by_chance = ", ".join(f"{value:.1f}" for value in np.median(expected, axis=0))
                print(f"| {kernel}, {dtype} | {len(found)} | {told(np.array(found))} | {by_chance} |")
                everything += found
                chance += expected
    by_chance = ", ".join(f"{value:.1f}" for value in np.median(chance, axis=0))
    print(f"| all | {len(everything)} | {told(np.array(everything))} | {by_chance} |")


def tables_of(path: Path) -> dict[tuple[str, str], dict[str, RecordedSpace]]:
    """Recorded spaces by kernel and class, and in these by shape."""
    rows: dict[tuple[str, str], dict[str, list[Recorded]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["time_ms"]:
                by_shape = rows.setdefault((row["kernel"], row["dtype"]), {})
                by_shape.setdefault(row["shape"], []).append(recorded_row(row))
    return {
        kernel: {shape: space_from(shape, found) for shape, found in shapes.items()}
        for kernel, shapes in rows.items()
    }


def recorded_row(row: dict[str, str]) -> Recorded:
    return Recorded(
        Role.CANDIDATE, row["kernel"], row["dtype"], {}, json.loads(row["params"]), Status.OK, Stage.DONE, "",
        (float(row["time_ms"]),), "measured", "events", "cold", row["device"], row["device_uuid"], "",
    )  # fmt: skip


def away(one: str, other: str) -> float:
    sizes = zip(map(int, one.split("x")), map(int, other.split("x")), strict=True)
    return sum(abs(math.log2(a / b)) for a, b in sizes)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", type=Path)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--known", type=int)
    parser.add_argument("--searched", action="store_true")
    chosen = parser.parse_args(given)
    if chosen.searched:
        searched()
    elif len(chosen.tables) < 2:
        parser.error("give a target and one table or more to learn from")
    else:
        compare(chosen.tables[0], chosen.tables[1:], chosen.seeds, chosen.known)


if __name__ == "__main__":
    main()
