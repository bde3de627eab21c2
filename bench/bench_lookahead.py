"""What asking ahead costs a search, on a recorded space: `python bench/bench_lookahead.py TABLE.csv[.gz] …`.

A table is either one of ours (`trials.csv`) or has a column a parameter and `time_ms`, empty where the
configuration failed. Printed are the median and the 10th percentile, over seeds, of the optimum's time
over the best time found after some evaluations, in per cent.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import itertools
import json
import os
import statistics
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.model import ParamSpec
from sweeper.search import make
from sweeper.space.feasibility import Feasibility
from sweeper.space.mixed_radix import MixedRadix
from sweeper.space.space import Space

_COSTS = frozenset({"time_ms", "compile_ms", "benchmark_ms", "verification_ms"})
Times = npt.NDArray[np.float64]


def _points(rows: list[dict[str, str]]) -> list[tuple[dict[str, Any], float]]:
    """(parameters, time in ms or NaN) of each row, whichever kind of table it comes from."""
    if rows and "params" in rows[0]:
        ours = [r for r in rows if r["role"] == "candidate"]
        return [(json.loads(r["params"]), float(r["time_ms"] or "nan")) for r in ours]
    names = [n for n in rows[0] if n not in _COSTS]
    return [({n: _value(r[n]) for n in names}, float(r["time_ms"] or "nan")) for r in rows]


def _value(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text


@lru_cache(maxsize=1)
def load(path: Path) -> tuple[Space, Times]:
    """The recorded points as a space, and the time of each row of it (NaN: failed)."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    points = _points(list(csv.DictReader(io.StringIO(text, newline=""))))
    names = list(points[0][0])
    levels = {n: sorted({p[n] for p, _ in points}) for n in names}
    params = [ParamSpec(n, tuple(levels[n]), levels[n][0]) for n in names]
    radix = MixedRadix.of([len(levels[n]) for n in names])
    columns = [np.array([levels[n].index(p[n]) for p, _ in points]) for n in names]
    codes = radix.encode(columns, range(len(names)))
    order = np.lexsort(codes[::-1])
    times = np.array([time for _, time in points])[order]
    return Space(Feasibility(params, (), {}, {}), radix, codes[:, order]), times


def search(path: Path, strategy: str, lookahead: int, seed: int, budget: int) -> list[float]:
    """Optimum over best time so far after each evaluation; `lookahead` are asked before one is told."""
    space, times = load(path)
    optimum = float(np.nanmin(times))
    search_ = make(strategy, space, seed)
    waiting: deque[int] = deque()
    best, share = np.inf, []
    asked = 0
    while len(share) < budget:
        wanted = min(lookahead - len(waiting), budget - asked)
        rows = search_.ask(wanted) if wanted > 0 else []
        asked += len(rows)
        waiting.extend(rows)
        row = waiting.popleft()
        value = float(times[row])
        search_.tell(row, None if np.isnan(value) else value)
        best = min(best, value) if not np.isnan(value) else best
        share.append(optimum / best)
    return share


def _run(job: tuple[Path, str, int, int, int]) -> list[float]:
    return search(*job)


def main(given: Sequence[str] | None = None) -> None:
    """Print the table: percent of the best after so many evaluations, medians and 10th percentiles over the seeds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--strategies", default="tpe,bayes")
    parser.add_argument("--lookaheads", default="1,4,8,16,32")
    parser.add_argument("--evaluations", default="25,50,100,200")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args(given)
    stops = [int(n) for n in chosen.evaluations.split(",")]
    print("| space | search | lookahead | " + " | ".join(f"{n}" for n in stops) + " |")
    print("|---|---|---|" + "---|" * len(stops))
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for table, strategy, ahead in itertools.product(
            chosen.tables, chosen.strategies.split(","), [int(n) for n in chosen.lookaheads.split(",")]
        ):
            jobs = [(table, strategy, ahead, seed, max(stops)) for seed in range(chosen.seeds)]
            runs = list(pool.map(_run, jobs))
            cells = []
            for n in stops:
                reached = sorted(100 * run[n - 1] for run in runs)
                tenth = reached[len(reached) // 10]
                cells.append(f"{statistics.median(reached):.1f} ({tenth:.1f})")
            name = table.name.partition(".")[0]
            print(f"| {name} | {strategy} | {ahead} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
