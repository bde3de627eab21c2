"""How far a plan is off on recorded runs: `python bench/bench_plan.py [RESULTS…] [--workers N] [--out FILE]`.

Each recorded study (default: results/h200) is estimated as `plan=true` would have, by what: the static model alone;
the same kernel at other sizes; the same kernel and sizes in other results. Its own rows are never among them. Seconds
a configuration are compared for studies of eight configurations or more: of fewer the first, which warms the device
up, is most. Printed are the estimate over what was recorded, its median and the range that holds nine of ten, and the
fit of the constants in `sweeper/plan/cost.py`. No GPU is used.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from sweeper.cli.planning import _typical_s
from sweeper.device import target
from sweeper.kernel.description import load
from sweeper.model import KernelSpec
from sweeper.paths import conf_dir
from sweeper.plan import Planned, Protocol, Rate, Work, estimated, rates_of
from sweeper.problem import resolve
from sweeper.results import Results, read_results

LIMITS = target("h200")


@dataclass(frozen=True)
class Case:
    """A recorded study: what its configurations took, and how long its job, where that is known."""

    rate: Rate
    evaluations: int
    protocol: Protocol
    libraries: int
    wall_s: float | None


@functools.cache
def spec_of(kernel: str) -> KernelSpec:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        node = compose("config", [f"kernel={kernel}"]).kernel
    return load(OmegaConf.to_container(node, resolve=True), conf_dir() / "kernel" / f"{kernel}.yaml")


def cases(results: Sequence[Results]) -> Iterator[Case]:
    for one in results:
        records: dict[str, list[dict[str, Any]]] = {}
        for record in one.runs:
            records.setdefault(str(record.get("study")), []).append(record)
        for study, rows in one.trials.groupby("study", sort=False):
            own = records.get(str(study), [])
            for rate in rates_of(replace(one, trials=rows)):
                measure = (
                    own[0]["config"]["measure"]
                    if own
                    else {"min_samples": 5, "max_samples": 5, "stop_factor": None}
                )
                known = [r for r in own if len(own) == 1 and r.get("seconds")]
                yield Case(
                    rate,
                    int((rows["role"] == "candidate").sum()),
                    Protocol(
                        measure["min_samples"],
                        measure["max_samples"],
                        measure.get("max_seconds", 1.0),
                        measure.get("stop_factor") is not None,
                    ),
                    int((rows["role"] == "baseline").sum()),
                    _wall(known[0]) if known else None,
                )


def _wall(record: Mapping[str, Any]) -> float:
    began, ended = (datetime.fromisoformat(record[key]) for key in ("started", "ended"))
    return (ended - began).total_seconds()


@functools.cache
def typical_s(kernel: str, dims: str) -> float | None:
    return _typical_s(spec_of(kernel), json.loads(dims), LIMITS)


def work_of(case: Case) -> Work | None:
    rate = case.rate
    try:
        spec = spec_of(rate.kernel)
        problem = resolve(spec, rate.dims, spec.default_point, seed=0)
        predicted = typical_s(rate.kernel, json.dumps(dict(rate.dims)))
    except Exception as error:
        print(f"left out: {rate.source} {rate.kernel}: {str(error).splitlines()[0]}")
        return None
    return Work(
        rate.kernel,
        rate.dtype,
        "",
        rate.dims,
        case.evaluations,
        case.evaluations,
        case.evaluations,
        libraries=case.libraries,
        bytes=problem.bytes,
        predicted_s=predicted,
        predict=lambda dims: typical_s(rate.kernel, json.dumps(dict(dims))),
    )


def summary(name: str, ratios: Sequence[float]) -> str:
    if not ratios:
        return f"| {name} | 0 | | |"
    low, high = np.quantile(ratios, [0.05, 0.95])
    factor = math.exp(float(np.quantile(np.abs(np.log(ratios)), 0.9)))
    return f"| {name} | {len(ratios)} | {statistics.median(ratios):.2f} | {low:.2f} to {high:.2f} | {factor:.2f} |"


def fit(results: Sequence[Results]) -> str:
    """The constants of a configuration by least squares of relative errors, every tenth row of a whole space."""
    rows, seconds = [], []
    for one in results:
        usable = one.trials[
            (one.trials["role"] == "candidate")
            & one.trials["measure_s"].gt(0)
            & one.trials["time_ms"].notna()
        ]
        usable = usable.iloc[:: max(1, len(usable) // 100)]
        for row in usable.itertuples():
            sizes = json.loads(row.dims)
            try:
                spec = spec_of(row.kernel)
                bytes_ = resolve(spec, sizes, spec.default_point, seed=0).bytes
            except Exception:  # noqa: S112 - a kernel that no longer ships
                continue
            rows.append((1.0, bytes_ / 1e9, (row.samples + 3) * row.time_ms / 1e3, row.samples))
            seconds.append(row.measure_s)
    a, y = np.array(rows), np.array(seconds)
    found, *_ = np.linalg.lstsq(a / y[:, None], np.ones(len(y)), rcond=None)
    off = np.abs(np.log(y / (a @ found)))
    return (
        f"{len(y)} rows: {found[0] * 1e3:.2g} ms a configuration, {found[1] * 1e3:.2g} ms a GB, {found[2]:.3f} times"
        f" the launches, {found[3] * 1e3:.2g} ms a sample; half are within {math.exp(np.median(off)) - 1:.0%},"
        f" nine of ten within a factor {math.exp(np.quantile(off, 0.9)):.2f}"
    )


def main() -> None:
    """Print the constants that fit the results, and how far estimates are from what they recorded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="*", type=Path)
    parser.add_argument("--workers", type=int, default=16, help="cores of the machine that recorded them")
    arguments = parser.parse_args()
    paths = arguments.results or sorted(
        [p.parent for p in Path("results/h200").glob("*/study.db")]
        + list(Path("results/h200/spaces").glob("*.gz"))
    )
    results = read_results(paths)
    print(fit(results), "\n")
    everything = list(cases(results))
    rates = [case.rate for case in everything]
    ratios: dict[str, list[float]] = {"static model": [], "other sizes": [], "same sizes": []}
    walls: dict[str, list[float]] = {"static model": [], "other sizes": [], "same sizes": []}
    for case in everything:
        work = work_of(case)
        if work is None:
            continue
        others = [r for r in rates if r.kernel == case.rate.kernel and r.source != case.rate.source]
        same = [r for r in others if dict(r.dims) == dict(case.rate.dims)]
        # Other sizes may come from the same results.
        sizes = [r for r in rates if r.kernel == case.rate.kernel and dict(r.dims) != dict(case.rate.dims)]
        for name, known in (("static model", []), ("other sizes", sizes), ("same sizes", same)):
            if name != "static model" and not known:
                continue
            alone = replace(work, libraries=0, entrants=0)
            job = Planned(1, "", [alone], case.protocol, workers=arguments.workers)
            per = estimated(job, known).device.likely / work.left
            if per > 0 and case.rate.rows >= 8:
                ratios[name].append(per / case.rate.measure_s)
            if case.wall_s is not None and per > 0:
                walls[name].append(estimated(replace(job, works=[work]), known).wall.likely / case.wall_s)
    print(
        "| estimated over recorded | studies | median | 5 % to 95 % | nine of ten within a factor |\n"
        "|---|---|---|---|---|"
    )
    for name, found in ratios.items():
        print(summary(f"device seconds a configuration, by {name}", found))
    for name, found in walls.items():
        print(summary(f"wall time of a job, by {name}", found))


if __name__ == "__main__":
    main()
