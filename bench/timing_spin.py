"""What our timer reads of kernels whose length is known: they spin until a clock on the device says so."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweeper.backend.base import MeasureProtocol
from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.graph import Graphs
from sweeper.backend.cuda.phases import Phases
from sweeper.backend.cuda.plan import Planner
from sweeper.backend.cuda.sampler import Sampler
from sweeper.backend.cuda.timing import Timer
from sweeper.device.nvml import Nvml
from sweeper.errors import TrialFailed

__all__ = ["DURATIONS_US", "spin_rows"]

DURATIONS_US = (2, 3, 5, 8, 12, 15, 20, 30, 40, 60, 100, 200, 500, 1000, 2000, 5000, 10_000)

# `globaltimer` counts nanoseconds (in steps of 32 on an H200), `clock64` cycles of the SM.
SOURCE = r"""
extern "C" __global__ void spin_ns(unsigned long long ns) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (now - start < ns);
}
extern "C" __global__ void spin_cycles(unsigned long long cycles) {
  const long long start = clock64();
  while (static_cast<unsigned long long>(clock64() - start) < cycles) {}
}
extern "C" __global__ void rate(unsigned long long* out, unsigned long long ns) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  const long long cycles = clock64();
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (now - start < ns);
  out[0] = clock64() - cycles;
  out[1] = now - start;
}
"""

PROTOCOL = MeasureProtocol(min_samples=20, max_samples=60, max_seconds=0.6, relative_width=0.002)


class _NoArrays:
    """In the place of a problem's arrays: a spin has none, and as many copies of them as anybody wants."""

    accumulates = False

    @property
    def first(self) -> _NoArrays:
        return self

    def __getitem__(self, number: int) -> _NoArrays:
        return self

    def provide(self, wanted: int) -> int:
        return wanted

    def refill(self) -> None:
        """There is nothing to refill."""


class _Spins:
    """The kernels on GPU 0, and the rate of its clock."""

    def __init__(self) -> None:
        self.device = CudaDevice(0, Nvml(), allow_shared=True)
        self.target = self.device.target()
        with tempfile.TemporaryDirectory() as folder:
            source, cubin = Path(folder) / "spin.cu", Path(folder) / "spin.cubin"
            source.write_text(SOURCE)
            command = [
                "nvcc",
                f"-arch={self.target.arch.rstrip('af')}",
                "-cubin",
                "-o",
                str(cubin),
                str(source),
            ]
            subprocess.run(command, check=True)
            self.module = self.device.drv.module_from_buffer(cubin.read_bytes())
        self.mhz = self._rate()

    def _rate(self) -> float:
        import numpy as np

        drv, out, told = self.device.drv, self.device.allocate(16), np.zeros(2, np.uint64)
        for _ in range(10):
            self.device.pause(5.0)
        rate = self.module.get_function("rate").prepare("PQ")
        rate.prepared_async_call((1, 1), (1, 1, 1), self.device.stream, int(out), 5_000_000)
        self.device.synchronize()
        drv.memcpy_dtoh(told, int(out))
        return float(told[0]) / float(told[1]) * 1e3

    def launcher(self, name: str, microseconds: float) -> Callable[[Any], None]:
        amount = microseconds * (1e3 if name == "spin_ns" else self.mhz)
        function = self.module.get_function(name).prepare("Q")
        return lambda _: function.prepared_async_call((1, 1), (1, 1, 1), self.device.stream, round(amount))


def spin_rows() -> list[dict[str, Any]]:
    """A row for each kernel, duration and way of timing: known, measured, and by how much that is off.

    `net_error_us` compares with the same kernel told to spin for no time at all, timed in the same way: what
    it takes to start and end a kernel is no part of the time that is known.
    """
    spins = _Spins()
    try:
        return _rows(spins)
    finally:
        spins.device.close()


def _rows(spins: _Spins) -> list[dict[str, Any]]:
    timer = Timer(spins.device, l2_bytes=spins.target.l2_bytes)
    rows = []
    for name in ("spin_ns", "spin_cycles"):
        empties = _Empties(spins, name)
        for known_us in DURATIONS_US:
            launch = spins.launcher(name, known_us)
            try:
                timing, _ = timer.measure(launch, _NoArrays(), PROTOCOL, Phases(), None)  # type: ignore[arg-type]
            except TrialFailed as failure:
                rows.append({"kernel": name, "known_us": known_us, "error": failure.reason})
                continue
            middle_us = sorted(timing.samples_ms)[len(timing.samples_ms) // 2] * 1e3
            empty_us = empties.like(timing.method)
            net = middle_us - empty_us - known_us
            rows.append(
                {
                    "kernel": name,
                    "known_us": known_us,
                    "method": timing.method.partition(" ")[0],
                    "measured_us": round(middle_us, 3),
                    "error_us": round(middle_us - known_us, 3),
                    "empty_us": round(empty_us, 3),
                    "net_error_us": round(net, 3),
                    "net_error_percent": round(100 * net / known_us, 3),
                    "within": abs(net) <= max(0.5, 0.02 * known_us),
                    "samples": len(timing.samples_ms),
                    "spread_percent": round(100 * (max(timing.samples_ms) / min(timing.samples_ms) - 1), 3),
                    "sm_clock_mhz": round(timing.sm_clock_mhz or 0.0, 1),
                }
            )
    return rows


class _Empties:
    """How long a kernel takes that is told to spin for no time, by the way of timing."""

    def __init__(self, spins: _Spins, name: str) -> None:
        self._sampler = Sampler(spins.device, l2_bytes=spins.target.l2_bytes)
        graphs = Graphs(int(spins.device.stream.handle))
        self._planner = Planner(
            spins.device, graphs, self._sampler.flush_cache, l2_bytes=spins.target.l2_bytes
        )
        self._launch = spins.launcher(name, 0)
        self._known: dict[str, float] = {}

    def like(self, method: str) -> float:
        if method not in self._known:
            number = int(method.partition("×")[2].partition(" ")[0] or 1)
            # As if a launch were just so long that this many are taken.
            single_ms = 1.0 if number == 1 else 0.1 / number
            below_ms = 1.0 if method.startswith("graph") else 0.0
            protocol = MeasureProtocol(graph_below_ms=below_ms)
            with self._planner.plan(self._launch, _NoArrays(), "cold", protocol, single_ms) as plan:  # type: ignore[arg-type]
                if plan.method != method:
                    raise AssertionError(f"{plan.method} is not {method}")
                taken = [
                    self._sampler.take(plan.queue, plan.ready, flushes=True).elapsed_ms for _ in range(25)
                ]
            self._known[method] = sorted(taken)[12] / plan.launches * 1e3
        return self._known[method]
