"""The command line in tests: kernels of one's own in a folder, commands on the emulator or a pretended GPU.

kernel_in(folder, "mine", params={"block": [8, 16]})        # mine.yaml and mine.cu
code = sweep("--config-dir", folder, "kernel=mine", "results_dir=out")
rows(Path("out"))
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench_rig import matrices, sizes
from cubins import fake_nvcc

import sweeper
from sweeper.cli.app import main
from sweeper.worker.pool import DeviceWorker

__all__ = ["PRODUCT_CU", "TILED_CU", "PretendedGpu", "kernel_in", "python", "rows", "runs", "sweep"]

HERE = Path(__file__).parent

# One thread one element of C, whatever the block.
PRODUCT_CU = """// fake: kernels product
extern "C" __global__ void product(const float* A, const float* B, float* C, int M, int N, int K) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= M || j >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[i * K + k] * B[k * N + j];
  C[i * N + j] = sum;
}
"""

# A block of TILE×TILE threads, and nothing that would tell it of another.
TILED_CU = """// fake: kernels product
extern "C" __global__ void product(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float a[TILE][TILE], b[TILE][TILE];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
  float sum = 0;
  for (int k = 0; k < K; k += TILE) {
    a[y][x] = row < M && k + x < K ? A[row * K + k + x] : 0.f;
    b[y][x] = k + y < K && column < N ? B[(k + y) * N + column] : 0.f;
    __syncthreads();
    for (int i = 0; i < TILE; ++i) sum += a[y][i] * b[i][x];
    __syncthreads();
  }
  if (row < M && column < N) C[row * N + column] = sum;
}
"""


def kernel_in(folder: Path, name: str = "mine", source: str = PRODUCT_CU, **changes: Any) -> list[str]:
    """Write the kernel and its description; the arguments that choose it.

    By default a product with a square block of `block` threads along x and y. A key of None is left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.cu").write_text(source)
    node: dict[str, Any] = {
        "name": name,
        "source": f"{name}.cu",
        "entry": "product",
        "dims": ["M", "N", "K"],
        "params": {"block": [16]},
        "launch": {"block": ["block", "block"], "grid": ["ceil(N / block)", "ceil(M / block)"]},
        "args": [*matrices(), *sizes("M", "N", "K")],
        "reference": {"contraction": "mk,kn->mn"},
    }
    node = {key: value for key, value in {**node, **changes}.items() if value is not None}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(node, sort_keys=False))
    return ["--config-dir", str(folder), f"kernel={name}"]


def sweep(*arguments: object, backend: str = "emulator") -> int:
    return main([f"backend={backend}", *map(str, arguments)])


def rows(folder: Path, name: str = "trials.csv") -> list[dict[str, str]]:
    with (folder / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def runs(folder: Path) -> list[dict[str, Any]]:
    """The provenance of every job that wrote to the folder."""
    found: list[dict[str, Any]] = json.loads((folder / "run.json").read_text(encoding="utf-8"))["runs"]
    return found


def python(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """The package in a process of its own."""
    search = os.pathsep.join([environment.pop("PYTHONPATH", ""), str(Path(sweeper.__file__).parents[1])])
    env = {**os.environ, "PYTHONPATH": search.strip(os.pathsep), **environment}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=120)


class PretendedGpu:
    """`backend=cuda` with an nvcc and a device that are neither: they answer at once, and count.

    `name` is the GPU that the device is said to be; changed in between, it is another one.
    """

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, name: str = "a100", **nvcc: str
    ) -> None:
        self.nvcc = fake_nvcc(folder / "nvcc", **nvcc)
        self.calls = folder / "calls"
        self._patch = monkeypatch
        defaults = DeviceWorker.__init__.__kwdefaults__
        monkeypatch.setitem(defaults, "module", "fake_gpu_worker")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
        monkeypatch.setenv("PATH", os.pathsep.join([str(self.nvcc.parent), os.environ["PATH"]]))
        monkeypatch.setenv("SWEEPER_CACHE", str(folder / "cache"))
        monkeypatch.setenv("PRETENDED_CALLS", str(self.calls))
        self.become(name)

    def become(self, name: str, driver: str = "580.1") -> None:
        self._patch.setenv("PRETENDED_GPU", name)
        self._patch.setenv("PRETENDED_DRIVER", driver)

    def sweep(self, *arguments: object) -> int:
        return sweep("baseline=[]", "build.compiler=nvcc", *arguments, backend="cuda")

    @property
    def measured(self) -> list[dict[str, Any]]:
        """The parameters of every configuration that was measured, in order."""
        return (
            [json.loads(line) for line in self.calls.read_text().splitlines()] if self.calls.exists() else []
        )

    @property
    def compiled(self) -> int:
        """How often the compiler has compiled."""
        calls = self.nvcc.parent / "calls"
        return sum("--cubin" in line for line in calls.read_text().splitlines()) if calls.exists() else 0
