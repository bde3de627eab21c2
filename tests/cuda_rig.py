"""A pretended GPU with one backend and one prepared problem, for tests of the CUDA backend."""

from __future__ import annotations

import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cubins import Figures, cubin
from fake_graphs import FakeGraphApi
from fake_pycuda import Behaviour, FakeDriver, Memory
from specs import gemm_spec

from sweeper.backend.base import MeasureProtocol, Outcome
from sweeper.backend.cuda import CudaBackend
from sweeper.backend.cuda import graph as cuda_graph
from sweeper.backend.cuda import identity as cuda_identity
from sweeper.device.nvml import NvmlReadings
from sweeper.errors import TrialFailed
from sweeper.model import Build, KernelSpec, Launch, Point
from sweeper.problem import resolve
from sweeper.resources.geometry import launch_of

DIMS = {"M": 12, "N": 10, "K": 8}
QUICK = MeasureProtocol(warmup_ms=1.0, min_samples=3, max_samples=5, max_seconds=5.0)
POINT = Point.of({"tile": 8})


class FakeNvml:
    """Readings in turn; the last of them for ever."""

    def __init__(self, *readings: NvmlReadings) -> None:
        self.queue = list(readings) or [NvmlReadings(note="no NVML here")]
        self.glances: list[NvmlReadings] = []
        self.closed = False
        self.asked = 0

    def readings(self, pci_bus_id: str) -> NvmlReadings:
        self.asked += 1
        return self.queue.pop(0) if len(self.queue) > 1 else self.queue[0]

    def glance(self, pci_bus_id: str) -> NvmlReadings:
        """The next of `glances`, else what the next readings are."""
        return self.glances.pop(0) if self.glances else self.queue[0]

    def uuid(self, pci_bus_id: str) -> str | None:
        return f"GPU-of-{pci_bus_id}"

    def driver_version(self) -> str | None:
        return "580.1"

    def close(self) -> None:
        self.closed = True


def product(memory: Memory, a: int, b: int, c: int, m: int, n: int, k: int) -> np.ndarray:
    """The right GEMM on pretended device memory; the array it has written."""
    left, right = memory.array(a, (m, k), np.float32), memory.array(b, (k, n), np.float32)
    out = memory.array(c, (m, n), np.float32)
    out[:] = left.astype(np.float64) @ right.astype(np.float64)
    return out


class Rig:
    """A pretended GPU with one open backend and one prepared problem."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self.driver = FakeDriver()
        self.nvml = FakeNvml()
        self.install()

    def install(self, driver: FakeDriver | None = None) -> FakeDriver:
        self.driver = driver or self.driver
        self._monkeypatch.setitem(sys.modules, "pycuda", types.ModuleType("pycuda"))
        self._monkeypatch.setitem(sys.modules, "pycuda.driver", self.driver)
        self.graphs = FakeGraphApi(self.driver)
        self._monkeypatch.setattr(cuda_graph, "load_graph_api", lambda: self.graphs)
        return self.driver

    def backend(self, **options: Any) -> CudaBackend:
        return CudaBackend(**{"nvml": self.nvml, "readings_every_s": 0.0, **options})

    def prepared(self, kernel: KernelSpec | None = None, dims: dict[str, int] | None = None, **options: Any):
        self.spec = kernel or gemm_spec()
        self.problem = resolve(self.spec, dims or DIMS, self.spec.default_point, seed=3)
        self.cuda = self.backend(**options)
        self.target, self.identity = self.cuda.open(0, None)
        self.cuda.prepare(self.spec, self.problem)
        return self

    def build(self, *names: str) -> Build:
        path = self.folder / f"{names[0]}.cubin"
        path.write_bytes(cubin({name: Figures() for name in names}))
        return Build("key", "nvcc", path, names[0], "nvcc 13")

    def measure(
        self,
        run: Callable[..., Any] | Behaviour = product,
        protocol: MeasureProtocol = QUICK,
        point: Point = POINT,
        launch: Launch | None = None,
    ) -> Outcome:
        """Measure a kernel that does `run`."""
        self.driver.behaviours["matmul"] = run if isinstance(run, Behaviour) else Behaviour(run)
        geometry = launch or launch_of(self.spec, point, self.problem.dims, self.target)
        return self.cuda.measure(point, geometry, self.build("matmul"), protocol)

    def failure(self, *args: Any, **options: Any) -> TrialFailed:
        with pytest.raises(TrialFailed) as caught:
            self.measure(*args, **options)
        return caught.value


def make_rig(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    # The lock of a device lies in the system's temporary folder; tests run side by side.
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(cuda_identity, "_LINGER_S", 0.0)
    return Rig(folder, monkeypatch)
