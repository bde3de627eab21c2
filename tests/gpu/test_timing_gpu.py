"""On a GPU: what the timer reads of kernels whose length is known, cold and warm, by events and by graphs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.backend.base import MeasureProtocol
from sweeper.build.cache import BuildCache
from sweeper.build.nvcc import NvccBuilder
from sweeper.build.source import translation_unit
from sweeper.kernel import description as kernel
from sweeper.model import KernelSpec, Point, Timing
from sweeper.worker.pool import DeviceWorker

_ASK = "import pycuda.driver as d; d.init(); d.Device(0)"

_HIGHEST = """
import json, pynvml
pynvml.nvmlInit()
print(json.dumps(pynvml.nvmlDeviceGetMaxClockInfo(pynvml.nvmlDeviceGetHandleByIndex(0), 1)))
"""

# Copies x to y, and takes at least `ns` for it.
SPIN_CU = r"""
template <typename T, int ns>
__global__ void spin(const T* x, T* y, int n) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i];
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (now - start < ns);
}
"""

PROTOCOL = MeasureProtocol(warmup_ms=5.0, min_samples=10, max_samples=60, max_seconds=0.5, deadline_s=20.0)
SPINS_NS = (0, 3_000, 6_000, 15_000, 30_000, 80_000, 1_000_000)
# What the kernel does beside spinning: it starts, copies a few numbers, and ends. In µs, with room.
LAUNCH_US = (0.2, 3.0)


def _no_gpu() -> bool:
    asked = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, check=False, timeout=120)
    return asked.returncode != 0


pytestmark = pytest.mark.skipif(_no_gpu(), reason="no GPU, or no PyCUDA")


class Gpu:
    """A worker on GPU 0 with a compiler beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.worker = DeviceWorker("cuda")
        self.target, _ = self.worker.open()
        self.builder = NvccBuilder(BuildCache(folder / "cache"))
        (folder / "spin.cu").write_text(SPIN_CU)
        self._prepared = 0

    def spec(self, blocks: int) -> KernelSpec:
        node = {
            "name": "spin",
            "source": "spin.cu",
            "entry": "spin",
            "template": ["T", "ns"],
            "dtype": "float32",
            "dims": ["N"],
            "params": {"ns": list(SPINS_NS)},
            "launch": {"block": [256], "grid": [blocks]},
            "args": [
                {"name": "x", "shape": ["N"], "direction": "in"},
                {"name": "y", "shape": ["N"], "direction": "out"},
                {"name": "n", "scalar": "int32", "value": "N"},
            ],
            "reference": {"contraction": "n->n"},
        }
        return kernel.load(node, self.folder / "spin.yaml")

    def measure(self, ns: int, size: int = 256, protocol: MeasureProtocol = PROTOCOL) -> Timing:
        spec = self.spec(1 if size <= 256 else 1024)
        if self._prepared != size:
            self.worker.prepare(spec, {"N": size}, seed=7)
            self._prepared = size
        point = Point.of({"ns": ns})
        build = self.builder.build(translation_unit(spec, point), arch=self.target.arch, deadline_s=120)
        timing = self.worker.measure(point, build, protocol).timing
        assert timing is not None
        return timing


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpu]:
    gpu = Gpu(tmp_path_factory.mktemp("gpu"))
    yield gpu
    gpu.worker.close()


def median_us(timing: Timing) -> float:
    return 1e3 * sorted(timing.samples_ms)[len(timing.samples_ms) // 2]


@pytest.mark.parametrize(
    ("ns", "method"),
    [
        (3_000, "graph×"),
        (6_000, "graph×"),
        (15_000, "events"),
        (30_000, "events"),
        (80_000, "events"),
        (1_000_000, "events"),
    ],
)
def test_a_kernel_of_known_length_is_timed_right_by_events_and_by_graphs(
    gpu: Gpu, ns: int, method: str
) -> None:
    timing = gpu.measure(ns)
    low, high = LAUNCH_US
    assert timing.method.startswith("graph×") if method == "graph×" else timing.method == "events"
    assert ns / 1e3 + low < median_us(timing) < ns / 1e3 + high
    assert timing.note == ""


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_a_graph_and_a_batch_differ_by_no_more_than_the_gap_between_launches(gpu: Gpu, cache: str) -> None:
    protocol = replace(PROTOCOL, cache=cache)
    graph = gpu.measure(6_000, protocol=protocol)
    batch = gpu.measure(6_000, protocol=replace(protocol, graph_below_ms=0.0))
    assert graph.method.startswith("graph×")
    assert batch.method.startswith("events×")
    assert abs(median_us(graph) - median_us(batch)) < 2.0


def test_data_that_fit_into_the_cache_are_faster_warm_and_both_are_in_the_row(gpu: Gpu) -> None:
    # 8 MB are read: a sixth of an H200's L2, and well above what a launch takes.
    timing = gpu.measure(0, size=1 << 21, protocol=replace(PROTOCOL, cache="both"))
    warm = timing.beside
    assert warm is not None
    assert (timing.cache, warm.cache) == ("cold", "warm")
    assert median_us(warm) < 0.95 * median_us(timing)


def test_the_clock_read_from_the_spin_is_nvml_s(gpu: Gpu) -> None:
    timing = gpu.measure(1_000_000)
    asked = subprocess.run([sys.executable, "-c", _HIGHEST], capture_output=True, text=True, check=False)
    assert timing.sm_clock_mhz is not None
    if asked.returncode == 0:
        assert 0.5 * json.loads(asked.stdout) < timing.sm_clock_mhz < 1.02 * json.loads(asked.stdout)
    assert timing.power_w is None or timing.power_w > 0


def test_samples_of_a_steady_kernel_are_all_kept_and_enough(gpu: Gpu) -> None:
    timing = gpu.measure(80_000)
    assert timing.discarded == 0
    assert timing.stopped_by == "precise"
    assert max(timing.samples_ms) < 1.05 * min(timing.samples_ms)


def test_the_entropy_criterion_ends_where_the_samples_repeat(gpu: Gpu) -> None:
    protocol = replace(PROTOCOL, stopping="entropy", max_samples=500, max_seconds=5.0)
    timing = gpu.measure(80_000, protocol=protocol)
    assert timing.stopped_by == "entropy"
    assert 32 <= len(timing.samples_ms) < 500


def test_a_launch_is_timed_alike_whether_the_worker_is_new_or_not(gpu: Gpu) -> None:
    before = median_us(gpu.measure(80_000))
    with DeviceWorker("cuda", allow_shared=True) as other:
        other.open()
        spec = gpu.spec(1)
        other.prepare(spec, {"N": 256}, seed=7)
        point = Point.of({"ns": 80_000})
        build = gpu.builder.build(translation_unit(spec, point), arch=gpu.target.arch, deadline_s=120)
        timing = other.measure(point, build, PROTOCOL).timing
    assert timing is not None
    assert abs(median_us(timing) - before) < 1.0
