"""Several spaces with one budget, by replay: `python bench/bench_budget.py [TABLE…] [--seeds N] [--weights W,W,…]`.

Recorded spaces stand for the shapes of one kernel. Every search is the default one, begun without estimates, in parts
as a command with `shapes=[…]` has them. For each budget: the weighted geometric mean of the percent of the best speed,
with equal shares (whoever was asked least is next) and by `sweeper.tune.grant`; median and 10th percentile over the
seeds. A search does not depend on what the others do, so each is replayed once, for all budgets.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from sweeper.benchmark.recorded_space import RecordedSpace, load_space
from sweeper.search import make
from sweeper.search.gain import expected_gain
from sweeper.tune import Standing, grant, past_gain
from sweeper.tune.allocate import LEAST

SPACES = sorted((Path(__file__).parents[1] / "results" / "h200" / "spaces").glob("*.csv.gz"))
EACH = (24, 32, 40, 50, 60)
"""Budgets, in evaluations for each space that is not used up before."""
MOST = 120


@dataclass(frozen=True)
class Trace:
    """One search: what it was told in asked order, and what it expected to gain after so many; `best_ms` is known."""

    values: tuple[float | None, ...]
    gains: Mapping[int, float | None]
    best_ms: float

    def standing(self, asked: int, weight: float) -> Standing:
        past = past_gain(self.values[:asked])
        return Standing(asked, len(self.values), weight, self.gains.get(asked), past)

    def percent(self, asked: int) -> float:
        """Of the best speed; 1 where nothing valid was found, so that a mean of logarithms is one."""
        found = [value for value in self.values[:asked] if value is not None]
        return 100 * self.best_ms / min(found) if found else 1.0


@lru_cache(maxsize=8)
def loaded(path: Path) -> RecordedSpace:
    return load_space(path)


def trace(path: Path, seed: int, part: int) -> Trace:
    """The default search of the space at `path`: the least in one go, then part by part."""
    recorded = loaded(path)
    search = make("guided", recorded.space, seed)
    size = min(MOST, len(recorded.space))
    rows: list[int] = []
    values: list[float | None] = []
    gains: dict[int, float | None] = {}
    until = min(LEAST, size)
    while len(values) < size:
        rows += search.ask(min(part - (len(rows) - len(values)), until - len(rows)))
        time = float(recorded.times_ms[rows[len(values)]])
        values.append(None if math.isnan(time) else time)
        search.tell(rows[len(values) - 1], values[-1])
        if len(values) == until:
            gains[until] = expected_gain(search)
            until = min(until + part, size)
    return Trace(tuple(values), gains, recorded.best_ms)


def shared(traces: Sequence[Trace], weights: Sequence[float], budget: int, part: int) -> list[int]:
    """How much each has of `budget`, granted by what it is expected to gain."""
    asked = [0] * len(traces)
    while True:
        standings = [one.standing(n, w) for one, n, w in zip(traces, asked, weights, strict=True)]
        more = grant(standings, budget, part)
        if more is None:
            return asked
        asked[more.place] += more.count


def alike(traces: Sequence[Trace], budget: int) -> list[int]:
    """The same for all, and what one cannot use for the others."""
    asked = [0] * len(traces)
    for _ in range(min(budget, sum(len(one.values) for one in traces))):
        rivals = [place for place, one in enumerate(traces) if asked[place] < len(one.values)]
        asked[min(rivals, key=lambda place: asked[place])] += 1
    return asked


def mean_percent(traces: Sequence[Trace], weights: Sequence[float], asked: Sequence[int]) -> float:
    logs = [math.log(one.percent(n)) for one, n in zip(traces, asked, strict=True)]
    return math.exp(float(np.average(logs, weights=weights)))


def main(given: Sequence[str] | None = None) -> None:
    """Print, for each budget, percent of the best with equal shares and with shared ones: median (10th percentile)."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", type=Path, help="recorded spaces; those of this repository")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--weights", help="how much each space counts, in their order; equal")
    parser.add_argument("--part", type=int, default=8, help="evaluations asked at a time (8)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args(given)
    paths = chosen.tables or SPACES
    weights = [float(w) for w in chosen.weights.split(",")] if chosen.weights else [1.0] * len(paths)
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    jobs = [(path, seed, chosen.part) for seed in range(chosen.seeds) for path in paths]
    with ProcessPoolExecutor(chosen.workers, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(trace, *zip(*jobs, strict=True)))
    runs = [found[at : at + len(paths)] for at in range(0, len(found), len(paths))]
    print(", ".join(path.name.partition(".")[0] for path in paths), f"; weights {weights}; {len(runs)} seeds")
    print("| budget | equal shares | shared | mean evaluations of each, shared |")
    print("|---|---|---|---|")
    for each in EACH:
        budget = sum(min(each, len(one.values)) for one in runs[0])
        shares = [shared(run, weights, budget, chosen.part) for run in runs]
        cells = []
        for asked in ([alike(run, budget) for run in runs], shares):
            percents = [mean_percent(run, weights, n) for run, n in zip(runs, asked, strict=True)]
            cells.append(f"{np.median(percents):.1f} ({np.percentile(percents, 10):.1f})")
        print(
            f"| {budget} | {' | '.join(cells)} | {', '.join(f'{n:.0f}' for n in np.mean(shares, axis=0))} |"
        )


if __name__ == "__main__":
    main()
