"""A device with a compiler beside it, a GPU or the emulator: what builds, proves and times one configuration."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from sweeper.backend.base import MeasureProtocol, Outcome
from sweeper.build.make import make_builder
from sweeper.build.source import translation_unit
from sweeper.errors import TrialFailed
from sweeper.kernel import description as kernel
from sweeper.model import KernelSpec, Point, canonical_json
from sweeper.paths import conf_dir
from sweeper.worker.pool import DeviceWorker

__all__ = ["QUICK", "Bench", "OnBench", "matrices", "no_gpu", "sizes"]

QUICK = MeasureProtocol(warmup_ms=1.0, min_samples=3, max_samples=6, max_seconds=0.2, deadline_s=20.0)

# Of several test processes each would refuse a GPU that another has.
SIDE_BY_SIDE = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1

_ASK = "import pycuda.driver as d; d.init(); d.Device(0)"


def no_gpu() -> bool:
    asked = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, check=False, timeout=120)
    return asked.returncode != 0


def matrices(output: str | None = None, *, fill: str = "uniform") -> list[dict[str, Any]]:
    """A, B and C of a matrix product; `output` is C's own precision class."""
    c = {"name": "C", "shape": ["M", "N"], "direction": "out"}
    return [
        {"name": "A", "shape": ["M", "K"], "direction": "in", "fill": fill},
        {"name": "B", "shape": ["K", "N"], "direction": "in", "fill": fill},
        {**c, "dtype": output} if output else c,
    ]


def sizes(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "scalar": "int32", "value": name} for name in names]


class Bench:
    """`backend` is `cuda` or `emulator`; what it compiles is kept in the build cache."""

    def __init__(self, backend: str, folder: Path) -> None:
        self.backend = backend
        self.folder = folder
        self.worker = DeviceWorker(backend, allow_shared=SIDE_BY_SIDE)
        self.target, self.identity = self.worker.open()
        self.builder = make_builder(backend, "auto", cache=True)
        self._prepared: tuple[str, str] | None = None

    def close(self) -> None:
        self.builder.close()
        self.worker.close()

    def shipped(self, name: str, dtype: str = "float32") -> KernelSpec:
        """A kernel of the configuration that ships, in one of its precision classes."""
        path = conf_dir() / "kernel" / f"{name}.yaml"
        node = yaml.safe_load(path.read_text(encoding="utf-8"))
        for part in node.pop("defaults", ()):
            if part != "_self_":
                problem = conf_dir() / f"{part.strip('/').partition('@')[0]}.yaml"
                node = {**yaml.safe_load(problem.read_text()), **node}
        return kernel.load({**node, "dtype": dtype}, path)

    def load(self, name: str, source: str, **node: Any) -> KernelSpec:
        """A kernel of this source text; by default a matrix product of 16×16 threads a block."""
        (self.folder / f"{name}.cu").write_text(source)
        described = {
            "name": name,
            "source": f"{name}.cu",
            "entry": "product",
            "dims": ["M", "N", "K"],
            "params": {},
            "launch": {"block": [16, 16], "grid": ["ceil(N / 16)", "ceil(M / 16)"]},
            "args": [*matrices(), *sizes("M", "N", "K")],
            "reference": {"contraction": "mk,kn->mn"},
        }
        return kernel.load({**described, **node}, self.folder / f"{name}.yaml")

    def prepare(self, spec: KernelSpec, dims: Mapping[str, int]) -> None:
        """Prepare, unless that is what is prepared."""
        wanted = (spec.node_json, canonical_json(dict(dims)))
        if wanted != self._prepared:
            self._prepared = None
            self.worker.prepare(spec, dims, seed=11)
            self._prepared = wanted

    def measure(
        self,
        spec: KernelSpec,
        dims: Mapping[str, int],
        params: Mapping[str, Any] | None = None,
        protocol: MeasureProtocol = QUICK,
    ) -> Outcome:
        """Build and run one configuration (default: the description's own)."""
        point = Point.of(params) if params is not None else spec.default_point
        arch = self.target.arch if self.backend == "cuda" else "host"
        build = self.builder.build(translation_unit(spec, point), arch=arch, deadline_s=120)
        self.prepare(spec, dims)
        return self.worker.measure(point, build, protocol)

    def failure(
        self,
        spec: KernelSpec,
        dims: Mapping[str, int],
        params: Mapping[str, Any] | None = None,
        protocol: MeasureProtocol = QUICK,
    ) -> TrialFailed:
        with pytest.raises(TrialFailed) as caught:
            self.measure(spec, dims, params, protocol)
        return caught.value


class OnBench:
    """Tests on one backend, named by `backend`, which all of a class share one bench of."""

    backend = ""

    @pytest.fixture(scope="class")
    @classmethod
    def bench(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
        made = Bench(cls.backend, tmp_path_factory.mktemp("bench"))
        yield made
        made.close()
