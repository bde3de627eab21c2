"""On a GPU: watts that the device can draw, joules that come out alike twice, and more work that takes more."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeper.backend.base import MeasureProtocol
from sweeper.build.cache import BuildCache
from sweeper.build.nvcc import NvccBuilder
from sweeper.build.source import translation_unit
from sweeper.kernel import description as kernel
from sweeper.model import Energy, Point, Timing
from sweeper.worker.pool import DeviceWorker

_ASK = "import pycuda.driver as d; d.init(); d.Device(0)"

_LIMIT = """
import json, pynvml
pynvml.nvmlInit()
print(json.dumps(pynvml.nvmlDeviceGetEnforcedPowerLimit(pynvml.nvmlDeviceGetHandleByIndex(0)) / 1e3))
"""

# Every thread computes for a known number of steps; nothing is waited for.
WORK_CU = r"""
template <typename T, int steps>
__global__ void work(const T* x, T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  T a = x[i], b = a + T(1), c = a + T(2), d = a + T(3);
  for (int k = 0; k < steps; ++k) {
    a = a * T(0.999) + T(0.001); b = b * T(0.999) + T(0.001);
    c = c * T(0.999) + T(0.001); d = d * T(0.999) + T(0.001);
  }
  y[i] = x[i] + T(0) * (a + b + c + d);
}
"""
STEPS = (1, 64, 2048, 8192)
PROTOCOL = MeasureProtocol(
    warmup_ms=50.0, min_samples=10, max_samples=30, max_seconds=0.3, objective="energy", energy_seconds=1.0
)


def _no_gpu() -> bool:
    asked = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, check=False, timeout=120)
    return asked.returncode != 0


pytestmark = pytest.mark.skipif(_no_gpu(), reason="no GPU, or no PyCUDA")


class Gpu:
    """A worker on GPU 0 with a compiler beside it."""

    def __init__(self, folder: Path) -> None:
        (folder / "work.cu").write_text(WORK_CU)
        node = {
            "name": "work",
            "source": "work.cu",
            "entry": "work",
            "template": ["T", "steps"],
            "dtype": "float32",
            "dims": ["N"],
            "params": {"steps": list(STEPS)},
            "launch": {"block": [256], "grid": ["ceil(N / 256)"]},
            "args": [
                {"name": "x", "shape": ["N"], "direction": "in"},
                {"name": "y", "shape": ["N"], "direction": "out"},
                {"name": "n", "scalar": "int32", "value": "N"},
            ],
            "reference": {"contraction": "n->n"},
        }
        self.spec = kernel.load(node, folder / "work.yaml")
        self.worker = DeviceWorker("cuda")
        self.target, _ = self.worker.open()
        self.builder = NvccBuilder(BuildCache(folder / "cache"))
        self.worker.prepare(self.spec, {"N": 1 << 20}, seed=7)

    def measure(self, steps: int) -> tuple[Timing, Energy]:
        point = Point.of({"steps": steps})
        build = self.builder.build(translation_unit(self.spec, point), arch=self.target.arch, deadline_s=120)
        timing = self.worker.measure(point, build, PROTOCOL).timing
        assert timing is not None
        assert timing.energy is not None
        return timing, timing.energy


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpu]:
    gpu = Gpu(tmp_path_factory.mktemp("gpu"))
    yield gpu
    gpu.worker.close()


def limit_w() -> float:
    asked = subprocess.run([sys.executable, "-c", _LIMIT], capture_output=True, text=True, check=False)
    return float(json.loads(asked.stdout)) if asked.returncode == 0 else 1500.0


@pytest.mark.parametrize("steps", STEPS)
def test_the_power_is_one_that_the_device_can_draw(gpu: Gpu, steps: int) -> None:
    timing, energy = gpu.measure(steps)
    assert 30 < energy.watts < 1.05 * limit_w()
    assert energy.low <= energy.joules <= energy.high
    assert energy.note == ""
    each_ms = 1e3 * energy.joules / energy.watts
    # From launch to launch with a warm L2, where launches in a graph overlap a little.
    assert 0.25 * min(timing.samples_ms) < each_ms < 1.5 * max(timing.samples_ms) + 0.005


def test_two_runs_agree_within_ten_per_cent(gpu: Gpu) -> None:
    (_, first), (_, second) = gpu.measure(2048), gpu.measure(2048)
    assert first.joules == pytest.approx(second.joules, rel=0.1)


def test_four_times_the_work_takes_about_four_times_the_energy(gpu: Gpu) -> None:
    (_, less), (_, more) = gpu.measure(2048), gpu.measure(8192)
    assert 3 < more.joules / less.joules < 5


def test_what_the_counter_leaves_uncertain_is_small_in_a_second(gpu: Gpu) -> None:
    _, energy = gpu.measure(2048)
    if energy.source == "counter":
        assert energy.resolution is not None
        assert energy.resolution < 0.1
