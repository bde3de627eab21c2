"""How well the model of a part finds what the whole table says: `python bench/bench_importance.py [TABLE …]`.

Of each whole recorded space (default: those of results/h200/spaces with more than ten configurations), random parts
of 100, 300 and 1000 configurations, five of each: the mean difference of the shares to the exact ones, the largest,
how many of the three parameters that explain most are found, how often an interval holds the exact share, and the
share of the variance that the model predicts of what it has not seen. Then the seconds for each whole table by both
evaluators.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from sweeper.importance import Importance, analyse, analyse_results
from sweeper.results import read_results

SPACES = Path(__file__).parents[1] / "results" / "h200" / "spaces"
PARTS, SEEDS, FOREMOST = (100, 300, 1000), range(5), 3


def compared(found: Importance, exact: Importance) -> list[float]:
    """Mean and largest difference of `alone`, of `total`, of pairs, foremost found, intervals that hold, and fit."""
    theirs = {one.name: one for one in exact.parameters}
    ours = [one for one in found.parameters if one.name in theirs]
    rows = [
        (kind(one), kind(theirs[one.name])) for kind in (lambda p: p.alone, lambda p: p.total) for one in ours
    ]
    apart = np.abs([own.value - real.value for own, real in rows])
    held = [own.low <= real.value <= own.high for own, real in rows]
    known = {(pair.first, pair.second): pair.share.value for pair in exact.pairs}
    known |= {(second, first): share for (first, second), share in known.items()}
    pairs = [abs(pair.share.value - known[pair.first, pair.second]) for pair in found.pairs]
    first = {one.name for one in found.parameters[:FOREMOST]} & {
        one.name for one in exact.parameters[:FOREMOST]
    }
    half = len(ours)
    return [
        apart[:half].mean(), apart[:half].max(), apart[half:].mean(), apart[half:].max(), float(np.mean(pairs)),
        len(first), float(np.mean(held)), found.fit or 0.0,
    ]  # fmt: skip


def main() -> None:
    """Print the two tables."""
    paths = [Path(name) for name in sys.argv[1:]] or sorted(SPACES.glob("*.csv.gz"))
    print("| space | of | configurations | alone, mean | worst | total, mean | worst | pairs, mean | first three"
          " | intervals hold | fit |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    seconds = []
    for path in paths:
        (result,) = read_results([path])
        begin = time.process_time()
        (exact,) = analyse_results(result, whole=True)
        took = time.process_time() - begin
        if exact.tried <= 10:
            continue
        begin = time.process_time()
        analyse(result.trials, whole=False)
        seconds.append((result.name, exact.tried, took, time.process_time() - begin))
        rows = result.trials[result.trials["role"] == "candidate"]
        for part in (size for size in PARTS if size < exact.tried):
            figures = np.mean(
                [compared(analyse(rows.sample(part, random_state=seed)), exact) for seed in SEEDS], axis=0
            )
            shares = " | ".join(f"{figure:.3f}" for figure in figures[:5])
            print(f"| {result.name} | {exact.tried} | {part} | {shares} | {figures[5]:.1f} | {figures[6]:.0%}"
                  f" | {figures[7]:.2f} |", flush=True)  # fmt: skip
    print("\n| space | configurations | exact, s | model, s |\n|---|---|---|---|")
    for name, tried, whole, model in seconds:
        print(f"| {name} | {tried} | {whole:.2f} | {model:.2f} |")


if __name__ == "__main__":
    main()
