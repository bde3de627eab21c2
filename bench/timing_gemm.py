"""Shipped GEMM kernels, timed by our timer, launched under the profiler, and timed in many processes."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeper.backend.base import MeasureProtocol
from sweeper.build.cache import BuildCache
from sweeper.build.nvcc import NvccBuilder
from sweeper.build.source import translation_unit
from sweeper.check.compose import Composer, kernel_dims
from sweeper.errors import SetupError
from sweeper.model import Build, KernelSpec, Launch, Point, Timing
from sweeper.problem import resolve
from sweeper.resources.geometry import launch_of
from sweeper.statistics import effective_samples

__all__ = ["CASES", "ncu_rows", "spread_rows"]

MARK = "TIMED "
ROOT = Path(__file__).resolve().parents[1]
LAUNCHES = 9
PROTOCOL = MeasureProtocol(min_samples=30, max_samples=200, max_seconds=0.6, relative_width=0.002)
# As a search measures.
USUAL = MeasureProtocol()


@dataclass(frozen=True, slots=True)
class Case:
    """A shipped kernel at one shape and point."""

    kernel: str
    shape: str
    params: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        values = " ".join(f"{k}={v}" for k, v in self.params)
        return f"{self.kernel} {self.shape} {values}".strip()


CASES = (
    Case("tiled", "64x64x64"),
    Case("naive", "256x256x256"),
    Case("register_tile", "512x512x512"),
    Case("tiled", "512x512x512", (("tile", 32),)),
    Case("register_tile", "1024x1024x1024"),
    Case("register_tile", "2048x2048x2048", (("bm", 128), ("bn", 128), ("bk", 8), ("tm", 8), ("tn", 8))),
)
SPREAD = (CASES[2], CASES[5])


def _ready(cases: Sequence[Case]) -> Iterator[tuple[Any, Case, KernelSpec, Point, Launch, Build]]:
    """The backend with each case's problem prepared and its kernel built, one after the other."""
    from sweeper.backend.cuda import CudaBackend

    backend = CudaBackend(allow_shared=True)
    limits, _ = backend.open(0, None)
    builder = NvccBuilder(BuildCache(Path(os.environ.get("TIMING_CACHE", tempfile.gettempdir()))))
    with Composer() as composer:
        for case in cases:
            sizes = [f"shape.{name}={size}" for name, size in zip("mnk", case.shape.split("x"), strict=True)]
            spec, config = composer.compose([f"kernel={case.kernel}", *sizes])
            dims = kernel_dims(spec, config)
            point = Point.of({**spec.default_point.params, **dict(case.params)})
            build = builder.build(translation_unit(spec, point), arch=limits.arch, deadline_s=120)
            backend.prepare(spec, resolve(spec, dims, point, seed=42))
            yield backend, case, spec, point, launch_of(spec, point, dims, limits), build


def timed(cases: Sequence[Case], protocol: MeasureProtocol) -> list[tuple[Case, Timing]]:
    """Each case proved right and timed, in this process."""
    found = []
    for backend, case, _, point, launch, build in _ready(cases):
        timing = backend.measure(point, launch, build, protocol).timing
        found.append((case, timing))
    return found


def launched(cases: Sequence[Case]) -> None:
    """Launch each case a few times, for the profiler to look at."""
    from sweeper.backend.cuda.kernel import load_kernel

    for backend, _, _, _, launch, build in _ready(cases):
        device, sets = backend._device, backend._prepared.sets
        kernel = load_kernel(device, backend._target, build, launch)
        run = kernel.launcher(sets.first)
        for _ in range(LAUNCHES):
            run(sets.first)
            device.synchronize()


def ncu_rows(cache: Path) -> list[dict[str, Any]]:
    """Our time of each case beside the duration that Nsight Compute gives it, its caches flushed as ours are.

    Raises SetupError where there is no `ncu`, or it may not profile.
    """
    tool = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")
    if tool is None:
        raise SetupError("ncu is not on the PATH", hint="it comes with the CUDA toolkit")
    ours = _inner("time", range(len(CASES)), "precise", cache)
    how = ["--clock-control", "none", "--cache-control", "all", "--kernel-name", "regex:gemm", "--csv"]
    command = [tool, *how, "--metrics", "gpu__time_duration.sum", *_command("launch", range(len(CASES)), "")]
    told = subprocess.run(
        command, capture_output=True, text=True, check=False, env=_environment(cache), timeout=300
    )
    durations = _durations(told.stdout)
    if len(durations) != LAUNCHES * len(CASES):
        raise SetupError(f"ncu gave {len(durations)} durations:\n{told.stdout[-1500:]}{told.stderr[-500:]}")
    rows = []
    for place, (case, timing) in enumerate(zip(CASES, ours, strict=True)):
        theirs = statistics.median(durations[place * LAUNCHES : (place + 1) * LAUNCHES])
        ratio = timing["median_us"] / theirs
        graph = timing["method"].startswith("graph")
        row = {
            "case": case.name,
            "method": timing["method"],
            "ours_us": timing["median_us"],
            "ncu_us": round(theirs, 3),
        }
        difference = {
            "difference_us": round(timing["median_us"] - theirs, 3),
            "percent": round(100 * (ratio - 1), 3),
        }
        # A graph's launches overlap at their ends, which a kernel alone cannot.
        rows.append({**row, **difference, "within": None if graph else abs(ratio - 1) <= 0.02})
    return rows


def _durations(text: str) -> list[float]:
    """Microseconds from the profiler's table, in the order of the launches."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    scale = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}
    return [
        float(row["Metric Value"].replace(",", "")) * scale[row["Metric Unit"]]
        for row in csv.DictReader(io.StringIO("\n".join(lines)))
    ]


def spread_rows(cache: Path, processes: int) -> list[dict[str, Any]]:
    """The same configurations as a search measures them, each time in a process that has just begun."""
    places = [CASES.index(case) for case in SPREAD]
    return [
        {"process": process, **timing}
        for process in range(processes)
        for timing in _inner("time", places, "usual", cache)
    ]


def _command(what: str, places: Sequence[int] | range, protocol: str) -> list[str]:
    return [sys.executable, str(Path(__file__)), what, ",".join(map(str, places)), protocol]


def _environment(cache: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path, "TIMING_CACHE": str(cache)}


def _inner(what: str, places: Sequence[int] | range, protocol: str, cache: Path) -> list[dict[str, Any]]:
    told = subprocess.run(
        _command(what, places, protocol),
        capture_output=True,
        text=True,
        check=False,
        env=_environment(cache),
        timeout=180,
    )
    line = next((line for line in told.stdout.splitlines() if line.startswith(MARK)), None)
    if line is None:
        raise SetupError(f"the timed process failed:\n{told.stdout[-500:]}{told.stderr[-1500:]}")
    return list(json.loads(line.removeprefix(MARK)))


def _described(case: Case, timing: Timing) -> dict[str, Any]:
    samples = sorted(1e3 * s for s in timing.samples_ms)
    quarter = len(samples) // 4
    middle = statistics.median(samples)
    return {
        "case": case.name,
        "method": timing.method.partition(" ")[0],
        "median_us": round(middle, 3),
        "samples": len(samples),
        "effective_samples": round(effective_samples(timing.samples_ms), 1),
        "iqr_percent": round(100 * (samples[-1 - quarter] - samples[quarter]) / middle, 4),
        "stopped_by": timing.stopped_by,
        "discarded": timing.discarded,
        "sm_clock_mhz": timing.sm_clock_mhz,
        "power_w": timing.power_w,
        "temperature_c": timing.temperature_c,
        "note": timing.note,
    }


if __name__ == "__main__":
    chosen = [CASES[int(place)] for place in sys.argv[2].split(",")]
    if sys.argv[1] == "launch":
        launched(chosen)
    else:
        found = timed(chosen, PROTOCOL if sys.argv[3] == "precise" else USUAL)
        print(MARK + json.dumps([_described(case, timing) for case, timing in found]))
    sys.stdout.flush()
    # As the worker ends: PyCUDA's own end wants its contexts popped.
    os._exit(0)
