"""Where a worker's time goes, phase by phase, on a GPU: `python bench/bench_worker.py [SIZE …]`.

Each of three kernels is built first, for its default parameters, then measured several times at each cubic
size (default: 512 4096 8192) by one worker. Printed are the medians of every phase in milliseconds, what the
parent waited, and `beyond`: what the parent waited beyond the launches themselves, as long as they take by
the median of the samples. Ends with 3 where there is no GPU.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from sweeper.backend.base import MeasureProtocol, Outcome
from sweeper.build.cache import BuildCache
from sweeper.build.nvcc import NvccBuilder
from sweeper.build.source import translation_unit
from sweeper.errors import SetupError
from sweeper.kernel import description
from sweeper.model import Build, KernelSpec
from sweeper.paths import conf_dir
from sweeper.worker.pool import DeviceWorker

KERNELS = ("naive", "tiled", "register_tile")
SIZES = (512, 4096, 8192)
PHASES = ("load", "verify", "warmup", "measure", "finish")
REPEATS = 5
PROTOCOL = MeasureProtocol(min_samples=10, max_samples=10)


@dataclass(frozen=True)
class Measured:
    """One measurement, and how long the parent waited for it."""

    outcome: Outcome
    waited_ms: float

    @property
    def launch_ms(self) -> float:
        assert self.outcome.timing is not None
        return statistics.median(self.outcome.timing.samples_ms)

    @property
    def launches(self) -> int:
        """Verified before, sampled in batches, verified after; warm-up launches are overhead."""
        assert self.outcome.timing is not None
        _, _, batch = self.outcome.timing.method.partition("×")
        return (
            PROTOCOL.verify_launches
            + len(self.outcome.timing.samples_ms) * int((batch or "1").split()[0])
            + 1
        )

    @property
    def beyond_ms(self) -> float:
        return self.waited_ms - self.launches * self.launch_ms

    def phase_ms(self, name: str) -> float:
        return 1e3 * (self.outcome.phases_s or {}).get(name, 0.0)


def load(name: str) -> KernelSpec:
    """A shipped kernel, as `kernel=<name>` composes it."""
    path = conf_dir() / "kernel" / f"{name}.yaml"
    node: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    if node.pop("defaults", None):
        problem = yaml.safe_load((conf_dir() / "problem" / "gemm.yaml").read_text(encoding="utf-8"))
        node = {**problem, **node}
    return description.load(node, path)


def measure(worker: DeviceWorker, spec: KernelSpec, build: Build) -> Measured:
    began = time.perf_counter()
    outcome = worker.measure(spec.default_point, build, PROTOCOL)
    return Measured(outcome, 1e3 * (time.perf_counter() - began))


def line(name: str, size: int, prepare_ms: float, runs: Sequence[Measured]) -> str:
    def middle(values: Sequence[float]) -> float:
        return statistics.median(values)

    phases = "".join(f"{middle([run.phase_ms(p) for run in runs]):10.2f}" for p in PHASES)
    launch_ms, launches = middle([run.launch_ms for run in runs]), runs[0].launches
    waited_ms, beyond_ms = middle([run.waited_ms for run in runs]), middle([run.beyond_ms for run in runs])
    return (
        f"{name:14}{size:6}{prepare_ms:11.1f}{launch_ms:11.4f}{launches:6}{phases}"
        f"{waited_ms:11.2f}{beyond_ms:10.2f}"
    )


def main() -> int:
    """Print a line for each kernel at each size of the command line. Gives 0, or 3 where there is no GPU."""
    sizes = [int(text) for text in sys.argv[1:]] or SIZES
    worker = DeviceWorker("cuda")
    try:
        target, identity = worker.open()
    except SetupError as error:
        print(f"no GPU to measure on: {error}", file=sys.stderr)
        return 3
    builder = NvccBuilder(BuildCache())
    try:
        specs = {name: load(name) for name in KERNELS}
        builds = {
            name: builder.build(
                translation_unit(spec, spec.default_point), arch=target.arch, deadline_s=120.0
            )
            for name, spec in specs.items()
        }
        print(f"{identity.name}, {REPEATS} measurements of {PROTOCOL.min_samples} samples each; milliseconds")
        heads = "".join(f"{phase:>10}" for phase in PHASES)
        print(
            f"{'kernel':14}{'size':>6}{'prepare':>11}{'launch':>11}{'n':>6}{heads}{'waited':>11}{'beyond':>10}"
        )
        for size in sizes:
            for name, spec in specs.items():
                began = time.perf_counter()
                worker.prepare(spec, dict.fromkeys("MNK", size), seed=42)
                prepare_ms = 1e3 * (time.perf_counter() - began)
                measure(worker, spec, builds[name])
                runs = [measure(worker, spec, builds[name]) for _ in range(REPEATS)]
                print(line(name, size, prepare_ms, runs), flush=True)
    finally:
        builder.close()
        worker.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
