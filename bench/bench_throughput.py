"""Configurations per second beside Kernel Tuner: one kernel, one space, one GPU, runs taken in turns.

    python bench/bench_throughput.py [--points 25,200] [--repeat 3,1] [--part kt,nvcc,nvrtc,warm] [--out FOLDER]

Every run is a process of its own. A run's seconds count from the call that opens the device to the last
result: for Kernel Tuner all of `tune_kernel`, for us the start of worker and compilers, the inputs, the
reference, every configuration built, proved right, timed by as many launches (7), and stored. Kernel Tuner
verifies nothing here and does not flush the cache. Parts: `kt`; `nvcc` and `nvrtc` with an empty cache of
builds, `warm` with a full one; `nvrtc2` and `warm2` on two GPUs where there are two; `shipped` is nvrtc with
the default measuring protocol. Writes throughput.csv, .json and .md into FOLDER (results/h200). Ends with 3
where there is no GPU.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from sweeper.cli.session import feasible_space
from sweeper.config import BackendConfig, BuildConfig, Config, MeasureConfig, ShapeConfig
from sweeper.device import target
from sweeper.device.present import count_gpus, why_no_gpu
from sweeper.evaluate import LiveEvaluator
from sweeper.kernel.description import load
from sweeper.model import KernelSpec, Role, Trial
from sweeper.problem import resolve
from sweeper.provenance import run_record, write_json
from sweeper.space import Space
from sweeper.store import Store
from sweeper.table.row import time_ms
from sweeper.tune import Study, tune

SOURCE = Path(__file__).with_name("register_tile_macros.cu")
ENTRY = "register_tile_macros"
LAUNCHES = 7
LEVELS: dict[str, list[int]] = {
    "BM": [32, 64, 128, 256],
    "BN": [32, 64, 128, 256],
    "BK": [4, 8, 16, 32],
    "TM": [2, 4, 8],
    "TN": [2, 4, 8],
}
COLUMNS = (
    "points", "repetition", "part", "gpus", "seconds", "process_seconds", "configurations_per_s", "valid",
    "best_ms", "best", "device_busy_share", "waiting_for_builds_s", "compile_s", "device_s", "search_s", "store_s",
    "phases",
)  # fmt: skip
NODE: dict[str, Any] = {
    "name": ENTRY,
    "source": str(SOURCE),
    "entry": ENTRY,
    "dtype": "float32",
    "dims": ["M", "N", "K"],
    "params": LEVELS,
    "default": {"BM": 64, "BN": 64, "BK": 8, "TM": 4, "TN": 4},
    "constraints": ["BM * BN // (TM * TN) in (64, 128, 256, 512)"],
    "launch": {
        "block": ["(BM // TM) * (BN // TN)"],
        "grid": ["ceil(N / BN)", "ceil(M / BM)"],
        "static_shared_bytes": "(BM + BN) * BK * 4",
    },
    "args": [
        {"name": "A", "shape": ["M", "K"]},
        {"name": "B", "shape": ["K", "N"]},
        {"name": "C", "shape": ["M", "N"], "direction": "out"},
        *({"name": size, "scalar": "int32", "value": size} for size in "MNK"),
    ],
    "reference": {"contraction": "mk,kn->mn"},
}


def kernel() -> KernelSpec:
    return load({**NODE, "source": SOURCE.name}, SOURCE.with_suffix(".yaml"))


def chosen_rows(spec: KernelSpec, size: int, points: int) -> tuple[Space, list[int]]:
    """The space, and `points` rows of it in a fixed random order."""
    space = feasible_space(spec, {"M": size, "N": size, "K": size}, target("h200"))
    order = np.random.default_rng(0).permutation(len(space))[:points]
    return space, [int(row) for row in order]


class Chosen:
    """A search that asks given rows in their order."""

    independent = True

    def __init__(self, rows: Sequence[int]) -> None:
        self._rows = list(rows)

    def ask(self, count: int = 1) -> list[int]:
        given, self._rows = self._rows[:count], self._rows[count:]
        return given

    def tell(self, row: int, value: float | None) -> None:
        """No result changes the order."""


class Recorder:
    """Every trial into a store, its commit synchronised, as in a run."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._number = 0

    def find(self, params: Mapping[str, Any], role: Role) -> Trial | None:
        del params, role
        return None

    def add(self, trial: Trial) -> Trial:
        self._number += 1
        return self._store.add(replace(trial, number=self._number))


class Deaf:
    def finished(self, trial: Trial, *, reused: bool) -> None:
        """Nobody listens."""


def measure(part: str) -> MeasureConfig:
    """Kernel Tuner's number of launches and no warm-up; the default protocol for `shipped`."""
    if part == "shipped":
        return MeasureConfig(stop_factor=1.5)
    return MeasureConfig(
        name="as Kernel Tuner",
        warmup_ms=0.0,
        min_samples=LAUNCHES,
        max_samples=LAUNCHES,
        max_seconds=60.0,
        verify_launches=1,
    )


def run_ours(part: str, points: int, size: int, backend: str) -> dict[str, Any]:
    """One search by us; the cache of builds is where SWEEPER_CACHE says."""
    gpus = 2 if part.endswith("2") else 1
    compiler = {"nvcc": "nvcc", "emulator": "auto"}.get(part if backend == "cuda" else backend, "nvrtc")
    compiler = "nvcc" if part == "warm" and backend == "cuda" else compiler
    spec = kernel()
    dims = {"M": size, "N": size, "K": size}
    space, rows = chosen_rows(spec, size, points)
    config = Config(
        kernel={},
        shape=ShapeConfig(None, {}),
        measure=measure(part),
        backend=BackendConfig(name=backend),
        build=BuildConfig(compiler=compiler),
    )
    began = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        Store(Path(folder) / "study.db") as store,
        closing(LiveEvaluator(backend, config, print, devices=range(gpus))) as world,
    ):
        world.prepare(spec, dims, seed=42)
        problem = resolve(spec, dims, spec.default_point, seed=42)
        study = Study(spec, dims, str(size), 42, problem.flops, problem.bytes, world, asdict(config.measure))
        tally = tune(study, space, Chosen(rows), Recorder(store), Deaf(), budget=points, lookahead=1)
        seconds = time.perf_counter() - began
        devices = [asdict(device) for device in world.devices]
    return {
        "seconds": seconds,
        "gpus": gpus,
        "devices": devices,
        **_of_ours(tally.trials, tally.seconds, seconds),
    }


def _of_ours(trials: Sequence[Trial], spent: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    timed = [(value, t.params) for t in trials if (value := time_ms(t)) is not None]
    best = min(timed, key=lambda each: each[0], default=(None, {}))
    failures = sorted({t.reason for t in trials if t.reason})
    return {
        "valid": len(timed),
        "failures": failures[:5],
        "best_ms": best[0],
        "best": dict(best[1]),
        "compile_s": sum(t.build_s or 0.0 for t in trials),
        "device_s": sum(spent["device_busy"]),
        "device_busy_share": sum(spent["device_busy"]) / len(spent["device_busy"]) / seconds,
        "waiting_for_builds_s": spent["waiting_for_builds"],
        "search_s": spent["search"],
        "store_s": spent["store"],
        "phases": {name: round(value, 4) for name, value in spent["phases"].items()},
    }


def run_kernel_tuner(points: int, size: int) -> dict[str, Any]:
    """One search by Kernel Tuner on its PyCUDA backend, over the same points."""
    from kernel_tuner import tune_kernel

    space, rows = chosen_rows(kernel(), size, points)
    wanted = {tuple(space.point(row).params[name] for name in LEVELS) for row in rows}
    threads = sorted({bm // tm * (bn // tn) for bm, bn, _, tm, tn in wanted})

    def restriction(p: Mapping[str, int]) -> bool:
        right = p["block_size_x"] == p["BM"] // p["TM"] * (p["BN"] // p["TN"])
        return right and tuple(p[name] for name in LEVELS) in wanted

    rng = np.random.default_rng(42)
    a, b = (rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    arguments = [a, b, np.zeros((size, size), np.float32), *(np.int32(size) for _ in range(3))]
    began = time.perf_counter()
    results, env = tune_kernel(
        ENTRY,
        SOURCE.read_text(encoding="utf-8"),
        (size, size),
        arguments,
        {**LEVELS, "block_size_x": threads},
        restrictions=restriction,
        grid_div_x=["BN"],
        grid_div_y=["BM"],
        lang="PYCUDA",
        iterations=LAUNCHES,
        quiet=True,
    )
    seconds = time.perf_counter() - began
    timed = [r for r in results if isinstance(r.get("time"), int | float)]
    best = min(timed, key=lambda r: r["time"], default={})
    return {
        "seconds": seconds,
        "gpus": 1,
        "asked": len(results),
        "valid": len(timed),
        "best_ms": best.get("time"),
        "best": {name: int(best[name]) for name in LEVELS} if best else {},
        "compile_s": env.get("total_compile_time", 0.0) / 1e3,
        "device_s": env.get("total_benchmark_time", 0.0) / 1e3,
        "device_busy_share": env.get("total_benchmark_time", 0.0) / 1e3 / seconds,
        "waiting_for_builds_s": env.get("total_compile_time", 0.0) / 1e3,
        "search_s": env.get("total_strategy_time", 0.0) / 1e3,
        "store_s": 0.0,
        "phases": {},
    }


_MARK = "RESULT "


def in_own_process(part: str, points: int, chosen: argparse.Namespace, cache: Path) -> dict[str, Any]:
    """What one run found. Its output is shown where it fails."""
    command = [
        sys.executable, str(Path(__file__).resolve()), "--one", part, "--points", str(points),
        "--size", str(chosen.size), "--backend", chosen.backend,
    ]  # fmt: skip
    paths = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ, "SWEEPER_CACHE": str(cache), "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }  # fmt: skip
    began = time.perf_counter()
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=900,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    found = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode != 0 or not found:
        print(f"{part} ({points} points) failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}", flush=True)
        return {}
    result: dict[str, Any] = json.loads(found[-1].removeprefix(_MARK))
    result["process_seconds"] = seconds
    return result


def all_runs(chosen: argparse.Namespace, parts: Sequence[str]) -> list[dict[str, Any]]:
    """Every part in turn, and that again for each repetition and number of points."""
    rows = []
    repeats = [int(n) for n in chosen.repeat.split(",")]
    for i, points in enumerate(int(n) for n in str(chosen.points).split(",")):
        for repetition in range(repeats[min(i, len(repeats) - 1)]):
            with tempfile.TemporaryDirectory(prefix="throughput-") as root:
                for part in parts:
                    # `warm` finds what nvcc has built in this repetition, warm2 what nvrtc2 has.
                    shared = {"warm": "nvcc", "warm2": "nvrtc2"}.get(part, part)
                    found = in_own_process(part, points, chosen, Path(root) / shared)
                    if not found:
                        continue
                    row = {"points": points, "repetition": repetition, "part": part, **found}
                    row["configurations_per_s"] = points / row["seconds"]
                    rows.append(row)
                    print(
                        f"{points:4d} points, {part:8s} {row['seconds']:7.2f} s,"
                        f" {row['configurations_per_s']:6.2f} a second, {row['valid']} valid,"
                        f" best {row['best_ms']:.4f} ms, device busy {100 * row['device_busy_share']:.0f} %,"
                        f" waiting for builds {row['waiting_for_builds_s']:.2f} s",
                        flush=True,
                    )
    return rows


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table: medians over repetitions, and the ratio to Kernel Tuner with its spread."""
    titles = [
        "points", "run", "configurations a second", "× Kernel Tuner (least to most)", "best, ms", "valid",
        "device busy", "s waiting for builds", "s searching and storing",
    ]  # fmt: skip
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for points in dict.fromkeys(row["points"] for row in rows):
        ofs = [row for row in rows if row["points"] == points]
        theirs = {row["repetition"]: row["configurations_per_s"] for row in ofs if row["part"] == "kt"}
        for part in dict.fromkeys(row["part"] for row in ofs):
            own = [row for row in ofs if row["part"] == part]
            ratios = sorted(
                row["configurations_per_s"] / theirs[row["repetition"]]
                for row in own
                if row["repetition"] in theirs
            )
            middle = {
                name: statistics.median(row[name] for row in own)
                for name in ("configurations_per_s", "device_busy_share", "waiting_for_builds_s", "best_ms")
            }
            said = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})" if ratios else ""
            loop = statistics.median(row["search_s"] + row["store_s"] for row in own)
            lines.append(
                f"| {points} | {_title(part)} | {middle['configurations_per_s']:.2f} | {said}"
                f" | {middle['best_ms']:.4f} | {min(row['valid'] for row in own)}"
                f" | {100 * middle['device_busy_share']:.0f} % | {middle['waiting_for_builds_s']:.2f} | {loop:.2f} |"
            )
    return "\n".join(lines) + "\n"


def _title(part: str) -> str:
    return {
        "kt": "Kernel Tuner (nvcc through PyCUDA, one at a time, nothing verified)",
        "nvcc": "nvcc, cold cache",
        "nvrtc": "nvrtc, cold cache",
        "warm": "warm cache",
        "shipped": "nvrtc, cold cache, default protocol",
        "nvrtc2": "nvrtc, cold cache, 2 GPUs",
        "warm2": "warm cache, 2 GPUs",
    }.get(part, part)


def write(rows: Sequence[Mapping[str, Any]], chosen: argparse.Namespace, started: datetime) -> None:
    folder: Path = chosen.out
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "throughput.csv").open("w", newline="", encoding="utf-8") as file:
        lines = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        lines.writeheader()
        lines.writerows(
            {**row, "best": json.dumps(row["best"]), "phases": json.dumps(row["phases"])} for row in rows
        )
    devices = next((row["devices"] for row in rows if row.get("devices")), [])
    record = run_record(
        command=["python", "bench/bench_throughput.py", *sys.argv[1:]],
        config={"points": chosen.points, "repeat": chosen.repeat, "size": chosen.size, "kernel": NODE},
        started=started,
        facts={"devices": devices, "kernel_tuner": _kernel_tuner_version()},
    )
    write_json(record, folder / "throughput.json")
    (folder / "throughput.md").write_text(summary(rows), encoding="utf-8")


def _kernel_tuner_version() -> str | None:
    import importlib.metadata

    try:
        return importlib.metadata.version("kernel_tuner")
    except importlib.metadata.PackageNotFoundError:
        return None


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", default="25,200")
    parser.add_argument("--repeat", default="3,1", help="repetitions for each number of points")
    parser.add_argument("--part", default="kt,nvcc,warm,nvrtc,shipped,nvrtc2,warm2")
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--out", type=Path, default=Path("results/h200"))
    parser.add_argument("--backend", default="cuda", help="emulator: rehearse without a GPU, at a small size")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args(given)
    if chosen.one:
        points = int(chosen.points)
        kt = chosen.one == "kt"
        found = (
            run_kernel_tuner(points, chosen.size)
            if kt
            else run_ours(chosen.one, points, chosen.size, chosen.backend)
        )
        print(_MARK + json.dumps(found))
        return 0
    missing = why_no_gpu(ask=True) if chosen.backend == "cuda" else None
    if missing:
        print(f"{missing}: throughput is measured on a GPU", file=sys.stderr)
        return 3
    parts = [part for part in chosen.part.split(",") if part]
    if chosen.backend == "cuda" and count_gpus() < 2:
        parts = [part for part in parts if not part.endswith("2")]
    if "kt" in parts and _kernel_tuner_version() is None:
        print("Kernel Tuner is not installed (pip install kernel_tuner): measured without it")
        parts.remove("kt")
    started = datetime.now(UTC)
    rows = all_runs(chosen, parts)
    if not rows:
        return 1
    write(rows, chosen, started)
    print("\n" + summary(rows) + f"\nresults: {chosen.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
