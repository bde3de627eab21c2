"""What a fault of one kernel costs the configurations after it: ten right ones, before each fault and behind it."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from sweeper.backend.base import MeasureProtocol, Outcome
from sweeper.build.make import make_builder
from sweeper.build.source import translation_unit
from sweeper.errors import TrialFailed
from sweeper.kernel import description
from sweeper.model import Point
from sweeper.worker.pool import DeviceWorker

__all__ = ["FAULTS", "TEN", "FaultRun", "Machine", "Row", "stranger"]

TEN = tuple(range(10))
SIZE = 1024
PROTOCOL = MeasureProtocol(warmup_ms=5.0, min_samples=9, max_samples=15, max_seconds=0.3, deadline_s=3.0)
FAULTS = ("illegal address", "misaligned address", "trap", "assertion", "never ends", "prints without end")
_RIGHT = "right"

# ACT says what goes wrong, UNROLL makes ten configurations that are right.
_SOURCE = """#include <cassert>
#include <cstdio>
extern "C" __global__ void product(const float* A, const float* B, float* C, int M, int N, int K) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
#if ACT == 1
  C[(1ll << 40) + i] = 1;
#elif ACT == 2
  *reinterpret_cast<float*>(reinterpret_cast<char*>(C) + 1) = 1;
#elif ACT == 3
  __trap();
#elif ACT == 4
  assert(K < 0);
#elif ACT == 5
  for (volatile int x = 0; x < 1; x = 0) {}
#elif ACT == 6
  for (volatile int x = 0; x < 1; x = 0) printf("{\\"reply\\": \\"ok\\", \\"time_ms\\": 0.001} %d\\n", i);
#endif
  if (i >= M || j >= N) return;
  float sum = 0;
#pragma unroll UNROLL
  for (int k = 0; k < K; ++k) sum += A[i * K + k] * B[k * N + j];
  C[i * N + j] = sum;
}
"""
_DESCRIPTION: dict[str, Any] = {
    "name": "faulty",
    "source": "faulty.cu",
    "entry": "product",
    "dims": ["M", "N", "K"],
    "params": {"ACT": list(range(len(FAULTS) + 1)), "UNROLL": [n + 1 for n in TEN]},
    "launch": {"block": [32, 8], "grid": ["ceil(N / 32)", "ceil(M / 8)"]},
    "args": [
        {"name": "A", "shape": ["M", "K"], "direction": "in"},
        {"name": "B", "shape": ["K", "N"], "direction": "in"},
        {"name": "C", "shape": ["M", "N"], "direction": "out"},
        *({"name": name, "scalar": "int32", "value": name} for name in "MNK"),
    ],
    "reference": {"contraction": "mk,kn->mn"},
}


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration behind a fault: its time, and the same one's in the clean run."""

    unroll: int
    time_ms: float
    clean_ms: float


@dataclass(frozen=True, slots=True)
class FaultRun:
    """A fault: what became of its configuration, how long until the next one was right, and the ten behind it."""

    fault: str
    status: str
    reason: str
    failed_after_s: float
    next_right_after_s: float
    rows: tuple[Row, ...]

    @property
    def ratio(self) -> float:
        """The median of the ten times over the clean ones."""
        return statistics.median(row.time_ms / row.clean_ms for row in self.rows)


class Machine:
    """A worker on the GPU with the faulty kernel prepared."""

    def __init__(self, folder: Path) -> None:
        (folder / "faulty.cu").write_text(_SOURCE)
        (folder / "faulty.yaml").write_text(yaml.safe_dump(_DESCRIPTION))
        self.spec = description.load(_DESCRIPTION, folder / "faulty.yaml")
        self._stack = contextlib.ExitStack()
        self.worker = self._stack.enter_context(closing(DeviceWorker("cuda")))
        self.target, self.identity = self.worker.open()
        self.builder = self._stack.enter_context(closing(make_builder("cuda", "nvrtc", cache=True)))
        self.prepare(SIZE)

    def close(self) -> None:
        self._stack.close()

    def prepare(self, size: int) -> None:
        """Raises TrialFailed where it does not fit."""
        self.worker.prepare(self.spec, {"M": size, "N": size, "K": size}, 7)

    def measure(self, act: str, unroll: int = 0) -> Outcome:
        """Raises TrialFailed with what became of it."""
        point = Point.of({"ACT": (_RIGHT, *FAULTS).index(act), "UNROLL": unroll + 1})
        unit = translation_unit(self.spec, point)
        build = self.builder.build(unit, arch=self.target.arch, deadline_s=120)
        return self.worker.measure(point, build, PROTOCOL)

    def ten(self) -> dict[int, float]:
        """The times of ten right configurations in ms. Raises TrialFailed where one is not."""
        times = {}
        for unroll in TEN:
            outcome = self.measure(_RIGHT, unroll)
            if outcome.check is None or not outcome.check.passed or outcome.timing is None:
                raise AssertionError(f"UNROLL={unroll + 1} was not proved right and timed")
            times[unroll] = median(outcome.timing.samples_ms)
        return times

    def after(self, fault: str, clean: dict[int, float]) -> FaultRun:
        """Let `fault` happen, then measure the ten again."""
        began = time.monotonic()
        try:
            if fault == "out of memory":
                self.prepare(200_000)
            else:
                self.measure(fault)
            status, reason = "ok", "nothing happened"
        except TrialFailed as failure:
            status, reason = failure.status.value, failure.reason
        failed = time.monotonic()
        if fault == "out of memory":
            self.prepare(SIZE)
        self.measure(_RIGHT)
        right = time.monotonic()
        rows = tuple(Row(unroll, value, clean[unroll]) for unroll, value in self.ten().items())
        return FaultRun(fault, status, reason, failed - began, right - failed, rows)


@contextlib.contextmanager
def stranger() -> Iterator[None]:
    """Another process with a context on the GPU, which keeps it busy."""
    program = (
        "import pycuda.autoinit, pycuda.driver as d, pycuda.compiler as c, sys\n"
        "f = c.SourceModule('__global__ void f(float* a) { for (int i = 0; i < 1000000; ++i) a[threadIdx.x] += i; }')"
        ".get_function('f')\na = d.mem_alloc(4096); print('there', flush=True)\n"
        "while True:\n  f(a, block=(256, 1, 1), grid=(64, 1)); d.Context.synchronize()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout is None or process.stdout.readline().strip() != "there":
            raise AssertionError("the other process has no context")
        yield
    finally:
        process.kill()
        process.wait()
