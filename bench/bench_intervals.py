"""How often a reported interval holds the true median: `python bench/bench_intervals.py [FOLDER] [--runs 4000]`.

Simulated and seeded; needs no GPU. For each kind of noise and number of samples: the share of series whose
interval holds the median, plain (order statistics alone) and as reported (allowing for dependence), how many
series have no interval, and how wide it is on average. And the same for series that stop by themselves.
Writes intervals.csv, intervals.json and intervals.md into FOLDER (default: results/intervals).
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.statistics import StoppingRule, median_interval, series_interval

Noise = Callable[[np.random.Generator, int, int], npt.NDArray[np.float64]]

_GAMMA_MEDIAN = 1.6783469900166605
_SEED = 20
_COUNTS = (6, 10, 20, 50, 100, 300, 1000)


def _skewed(rng: np.random.Generator, runs: int, count: int) -> npt.NDArray[np.float64]:
    return 0.01 * (rng.gamma(2.0, 1.0, (runs, count)) - _GAMMA_MEDIAN)


def _normal(rng: np.random.Generator, runs: int, count: int) -> npt.NDArray[np.float64]:
    return 0.01 * rng.standard_normal((runs, count))


def _outliers(rng: np.random.Generator, runs: int, count: int) -> npt.NDArray[np.float64]:
    errors = _normal(rng, runs, count)
    errors[rng.random(errors.shape) < 0.05] += 0.5
    errors[rng.random(errors.shape) < 0.05] -= 0.5
    return errors


def _correlated(phi: float) -> Noise:
    def noise(rng: np.random.Generator, runs: int, count: int) -> npt.NDArray[np.float64]:
        shocks = _normal(rng, runs, count)
        errors = np.empty_like(shocks)
        errors[:, 0] = shocks[:, 0] / math.sqrt(1 - phi * phi)
        for i in range(1, count):
            errors[:, i] = phi * errors[:, i - 1] + shocks[:, i]
        return errors

    return noise


def _breathing(rng: np.random.Generator, runs: int, count: int) -> npt.NDArray[np.float64]:
    phase = 2 * math.pi * (rng.random((runs, 1)) + np.arange(count) / 25)
    return 0.01 * np.sin(phase) + 0.4 * _normal(rng, runs, count)


def _linear(rng: np.random.Generator, runs: int, count: int) -> npt.NDArray[np.float64]:
    return np.linspace(-0.01, 0.01, count) + 0.4 * _normal(rng, runs, count)


_NOISES: dict[str, tuple[str, Noise]] = {
    "iid normal": ("independent, normal, 1 %", _normal),
    "iid skewed": ("independent, gamma-shaped with a tail to the right", _skewed),
    "iid outliers": ("independent; every tenth sample is off by half", _outliers),
    "AR(1) 0.3": ("each error 0.3 of the last and something new", _correlated(0.3)),
    "AR(1) 0.6": ("0.6 of the last", _correlated(0.6)),
    "AR(1) 0.8": ("0.8 of the last", _correlated(0.8)),
    "AR(1) 0.95": ("0.95 of the last", _correlated(0.95)),
    "periodic drift": ("a wave of 25 samples, 1 % high, in 0.4 % of noise", _breathing),
    "linear drift": ("2 % from the first sample to the last, in 0.4 % of noise", _linear),
}


def fixed(runs: int) -> list[dict[str, Any]]:
    """Series of a fixed number of samples."""
    rows = []
    for name, (_, noise) in _NOISES.items():
        for count in _COUNTS:
            series = 1 + noise(np.random.default_rng(_SEED), runs, count)
            plain = np.array([median_interval(samples) for samples in series])
            reported = np.array([series_interval(samples) for samples in series])
            rows.append(
                {
                    "noise": name,
                    "samples": count,
                    **_figures("plain", plain),
                    **_figures("reported", reported),
                }
            )
    return rows


def _figures(name: str, intervals: npt.NDArray[np.float64]) -> dict[str, float | None]:
    """Coverage among the series that have an interval, the share of those that have none, the mean width."""
    low, high = intervals.T
    known = ~np.isnan(low)
    held = (low <= 1) & (high >= 1)
    covered = round(float(held[known].mean()), 4) if known.any() else None
    width = round(float((high - low)[known].mean()), 5) if known.any() else None
    return {
        f"{name}_coverage": covered,
        f"{name}_none": round(1 - float(known.mean()), 4),
        f"{name}_width": width,
    }


def stopped(runs: int) -> list[dict[str, Any]]:
    """Series that end by the rule of `measure=default`, looked at after every sample."""
    rows = []
    for name in ("iid normal", "iid skewed", "AR(1) 0.3", "AR(1) 0.6"):
        for criterion in ("width", "entropy", "either"):
            rng, counts, intervals = np.random.default_rng(_SEED), [], []
            for series in 1 + _NOISES[name][1](rng, runs // 4, 100):
                rule = StoppingRule(min_samples=10, max_samples=100, max_seconds=1e9, criterion=criterion)
                while not rule.stop(0.0):
                    rule.add(float(series[rule.count]))
                counts.append(rule.count)
                intervals.append(series_interval(series[: rule.count]))
            figures = _figures("reported", np.array(intervals))
            rows.append(
                {
                    "noise": name,
                    "stopping": criterion,
                    "mean_samples": round(float(np.mean(counts)), 1),
                    **figures,
                }
            )
    return rows


def _markdown(rows: list[dict[str, Any]]) -> str:
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += [
        "| " + " | ".join("" if row[name] is None else str(row[name]) for name in names) + " |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Simulate, write intervals.csv, .json and .md into the folder, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("results/intervals"))
    parser.add_argument("--runs", type=int, default=4000)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    tables = {"fixed": fixed(given.runs), "stopped": stopped(given.runs)}
    with (given.folder / "intervals.csv").open("w", newline="") as file:
        names = ["stopping", *tables["fixed"][0], "mean_samples"]
        writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(tables["fixed"] + tables["stopped"])
    meaning = {name: text for name, (text, _) in _NOISES.items()}
    told = {"seed": _SEED, "runs": given.runs, "confidence": 0.95, "noise": meaning, **tables}
    (given.folder / "intervals.json").write_text(json.dumps(told, indent=1) + "\n")
    (given.folder / "intervals.md").write_text(
        f"# Coverage of the median's 95 % interval\n\n{given.runs} simulated series each, seed {_SEED}; a quarter as"
        " many for those that stop by themselves. `plain` are order statistics alone, `reported` allow for"
        " dependence from 20 samples on. `none`: the share of series without an interval.\n\n"
        + "\n".join(f"- {name}: {text}" for name, text in meaning.items())
        + f"\n\n## A fixed number of samples\n\n{_markdown(tables['fixed'])}\n\n## Stopped by the rule of"
        f" `measure=default`\n\n{_markdown(tables['stopped'])}\n"
    )
    print(_markdown(tables["fixed"]), _markdown(tables["stopped"]), sep="\n\n")


if __name__ == "__main__":
    main()
