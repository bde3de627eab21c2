"""Configurations per second beside Kernel Tuner: one kernel, one space, one GPU, runs taken in turns.

    python bench/bench_throughput.py [--points 25,200] [--repeat 3,1] [--part kt,nvcc,nvrtc,warm] [--out FOLDER]

Every run is a process of its own. A run's seconds count from the call that opens the device to the last
result: for Kernel Tuner all of `tune_kernel`, for us the device's context, compilers, inputs, reference, and
every configuration built, proved right, timed and stored. As in a command, the process that will own the GPU
starts with the run, beside this one's imports; `process_seconds` has everything. Both launch a configuration 7
times: Kernel Tuner times all of them, we prove one before the others and one after, on other inputs, and time
5, each with a cold cache. Kernel Tuner verifies nothing here and does not flush. Parts: `kt`; `nvcc` and
`nvrtc` with an empty cache of builds, `warm` with a full one; `early` is nvrtc with the early stop of what
cannot be within a tenth of the best; `shipped` is nvrtc with the default measuring protocol; `nvrtc2` and
`warm2` use two GPUs where there are two. Writes NAME.csv, .json and .md (throughput) into FOLDER
(results/h200). Ends with 3 where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from throughput_report import summary, write

from sweeper.config import BackendConfig, BuildConfig, Config, MeasureConfig, ShapeConfig
from sweeper.device import target
from sweeper.device.present import count_gpus, why_no_gpu
from sweeper.evaluate import LiveEvaluator
from sweeper.kernel.description import load
from sweeper.model import KernelSpec, Role, Trial
from sweeper.problem import resolve
from sweeper.provenance import run_record
from sweeper.resources.feasible import feasible_space
from sweeper.space import Space
from sweeper.store import Store
from sweeper.table.row import time_ms
from sweeper.tune import Study, tune

SOURCE = Path(__file__).with_name("prefetched_tile_macros.cu")
ENTRY = "prefetched_tile_macros"
LAUNCHES = 7
# Of ours: one before the timing, one after it.
PROOFS = 2
LEVELS: dict[str, list[int]] = {
    "BM": [64, 128, 256],
    "BN": [64, 128, 256],
    "BK": [8, 16, 32],
    "TM": [4, 8],
    "TN": [4, 8],
    "PAD": [0, 4],
    "UNROLL": [1, 2, 4, 8],
}
NODE: dict[str, Any] = {
    "name": ENTRY,
    "source": str(SOURCE),
    "entry": ENTRY,
    "dtype": "float32",
    "dims": ["M", "N", "K"],
    "params": LEVELS,
    "default": {"BM": 64, "BN": 64, "BK": 8, "TM": 4, "TN": 4, "PAD": 0, "UNROLL": 8},
    # Whole vector loads a thread.
    "constraints": [
        "threads in (64, 128, 256, 512)",
        "BM * BK % (4 * threads) == 0",
        "BK * BN % (4 * threads) == 0",
    ],
    "launch": {
        "block": ["(BM // TM) * (BN // TN)"],
        "grid": ["ceil(N / BN)", "ceil(M / BM)"],
        "static_shared_bytes": "2 * BK * (BM + PAD + BN) * 4",
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
    timed = LAUNCHES - PROOFS
    return MeasureConfig(
        name="as Kernel Tuner",
        warmup_ms=0.0,
        min_samples=timed,
        max_samples=timed,
        max_seconds=60.0,
        verify_launches=1,
        stop_factor=1.1 if part == "early" else None,
    )


def run_ours(part: str, points: int, size: int, backend: str, workers: int) -> dict[str, Any]:
    """One search by us; the cache of builds is where SWEEPER_CACHE says."""
    gpus = 2 if part.endswith("2") else 1
    compiler = {"nvcc": "nvcc", "emulator": "auto"}.get(part if backend == "cuda" else backend, "nvrtc")
    compiler = "nvcc" if part in ("warm", "warm2") and backend == "cuda" else compiler
    spec = kernel()
    dims = {"M": size, "N": size, "K": size}
    space, rows = chosen_rows(spec, size, points)
    config = Config(
        kernel={},
        shape=ShapeConfig(None, {}),
        measure=measure(part),
        backend=BackendConfig(name=backend),
        build=BuildConfig(compiler=compiler, workers=workers),
    )
    began = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        Store(Path(folder) / "study.db") as store,
        closing(
            LiveEvaluator(backend, config, print, devices=range(gpus), problem=(spec, dims, 42))
        ) as world,
    ):
        problem = resolve(spec, dims, spec.default_point, seed=42)
        study = Study(spec, dims, str(size), 42, problem.flops, problem.bytes, world, asdict(config.measure))
        tally = tune(study, space, lambda: Chosen(rows), Recorder(store), Deaf(), budget=points, lookahead=1)
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
    threads = sorted({bm // tm * (bn // tn) for bm, bn, _, tm, tn, *_ in wanted})

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


def in_own_process(part: str, points: int, chosen: argparse.Namespace, cache: Path) -> dict[str, Any]:
    """What one run found. Its output is shown where it fails."""
    script = Path(__file__).with_name("throughput_one.py").resolve()
    numbers = [str(points), str(chosen.size), chosen.backend, str(chosen.workers)]
    command = [sys.executable, str(script), part, *numbers]
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
    found = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not found:
        print(f"{part} ({points} points) failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}", flush=True)
        return {}
    result: dict[str, Any] = json.loads(found[-1])
    result["process_seconds"] = seconds
    return result


def all_runs(
    chosen: argparse.Namespace, parts: Sequence[str], save: Callable[[list[dict[str, Any]]], None]
) -> list[dict[str, Any]]:
    """Every part in turn, and that again for each repetition and number of points; `save` after each."""
    rows: list[dict[str, Any]] = []
    repeats = [int(n) for n in chosen.repeat.split(",")]
    for i, points in enumerate(int(n) for n in str(chosen.points).split(",")):
        for repetition in range(repeats[min(i, len(repeats) - 1)]):
            with tempfile.TemporaryDirectory(prefix="throughput-") as root:
                for part in parts:
                    # The warm ones find what nvcc has built in this repetition.
                    shared = {"warm": "nvcc", "warm2": "nvcc"}.get(part, part)
                    found = in_own_process(part, points, chosen, Path(root) / shared)
                    if not found:
                        continue
                    row = {"points": points, "repetition": repetition, "part": part, **found}
                    row["configurations_per_s"] = points / row["seconds"]
                    rows.append(row)
                    save(rows)
                    print(
                        f"{points:4d} points, {part:8s} {row['seconds']:7.2f} s,"
                        f" {row['configurations_per_s']:6.2f} a second, {row['valid']} valid,"
                        f" best {row['best_ms']:.4f} ms, device busy {100 * row['device_busy_share']:.0f} %,"
                        f" waiting for builds {row['waiting_for_builds_s']:.2f} s",
                        flush=True,
                    )
    return rows


def save(rows: Sequence[Mapping[str, Any]], chosen: argparse.Namespace, started: datetime) -> None:
    """What was measured so far, with where it comes from: a run that is cut off leaves that much."""
    devices = next((row["devices"] for row in rows if row.get("devices")), [])
    record = run_record(
        command=["python", "bench/bench_throughput.py", *sys.argv[1:]],
        config={
            "workers": chosen.workers,
            "points": chosen.points,
            "repeat": chosen.repeat,
            "size": chosen.size,
            "kernel": {**NODE, "source": SOURCE.name},
        },
        started=started,
        facts={"devices": devices, "kernel_tuner": _kernel_tuner_version()},
    )
    chosen.out.mkdir(parents=True, exist_ok=True)
    write(rows, record, chosen.out, chosen.name)


def _kernel_tuner_version() -> str | None:
    import importlib.metadata

    try:
        return importlib.metadata.version("kernel_tuner")
    except importlib.metadata.PackageNotFoundError:
        return None


def main(given: Sequence[str] | None = None) -> int:
    """Run every part that `given` (the command line) names; 3 where there is no GPU, 1 where no run came to an end."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", default="25,200")
    parser.add_argument("--repeat", default="3,1", help="repetitions for each number of points")
    parser.add_argument("--part", default="kt,nvcc,warm,nvrtc,early,shipped,nvrtc2,warm2")
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--workers", type=int, default=0, help="compilers at once (0: one a processor)")
    parser.add_argument("--out", type=Path, default=Path("results/h200"))
    parser.add_argument("--name", default="throughput", help="of the files: NAME.csv, .json and .md")
    parser.add_argument("--backend", default="cuda", help="emulator: rehearse without a GPU, at a small size")
    chosen = parser.parse_args(given)
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
    rows = all_runs(chosen, parts, lambda rows: save(rows, chosen, started))
    if not rows:
        return 1
    print("\n" + summary(rows) + f"\nresults: {chosen.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
