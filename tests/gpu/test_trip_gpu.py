"""On a GPU: the way from host to host, proved right in parts, and faster where copies and launches overlap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from test_kernel import shipped

from sweeper.backend.base import MeasureProtocol, Outcome
from sweeper.build.cache import BuildCache
from sweeper.build.nvcc import NvccBuilder
from sweeper.build.source import translation_unit
from sweeper.device.present import why_no_gpu
from sweeper.kernel.description import load
from sweeper.model import KernelSpec
from sweeper.paths import conf_dir
from sweeper.worker.pool import DeviceWorker

pytestmark = pytest.mark.skipif(bool(why_no_gpu(ask=True)), reason=str(why_no_gpu(ask=True)))

QUICK = MeasureProtocol(warmup_ms=2.0, min_samples=10, max_samples=30, max_seconds=0.5)
LARGE = {"M": 2048, "N": 2048, "K": 2048}
# 7 parts of 19 rows and one of 17: no part is a whole number of tiles.
ODD = {"M": 150, "N": 77, "K": 201}


class Trips:
    """A worker with `whole_trip`, and a compiler beside it."""

    def __init__(self, folder: Path) -> None:
        path = conf_dir() / "kernel" / "whole_trip.yaml"
        self.node, self.path = shipped(path), path
        self.worker = DeviceWorker("cuda")
        self.target, _ = self.worker.open()
        self.builder = NvccBuilder(BuildCache(folder / "cache"))

    def prepare(self, dims: dict[str, int], dtype: str = "float32") -> KernelSpec:
        self.spec = load({**self.node, "dtype": dtype}, self.path)
        self.worker.prepare(self.spec, dims, seed=5)
        return self.spec

    def measure(self, chunks: int, streams: int, pinned: int) -> Outcome:
        chosen = {**self.spec.default_point.params, "chunks": chunks, "streams": streams, "pinned": pinned}
        point = replace(self.spec.default_point, items=tuple(chosen.items()))
        unit = translation_unit(self.spec, point)
        build = self.builder.build(unit, arch=self.target.arch, deadline_s=120)
        return self.worker.measure(point, build, QUICK)


@pytest.fixture(scope="module")
def trips(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trips]:
    made = Trips(tmp_path_factory.mktemp("trips"))
    yield made
    made.worker.close()


def time_ms(outcome: Outcome) -> float:
    assert outcome.timing is not None
    return median(outcome.timing.samples_ms)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("chunks", "streams", "pinned"), [(1, 1, 0), (8, 1, 1), (8, 4, 1)])
def test_what_arrives_on_the_host_is_right(trips, dtype, chunks, streams, pinned):
    trips.prepare(ODD, dtype)
    outcome = trips.measure(chunks, streams, pinned)
    assert outcome.check.passed
    assert outcome.check.checked == ODD["M"] * ODD["N"]
    assert outcome.timing.method == "host clock"


def test_rows_that_lie_apart_make_the_way_too(trips):
    trips.prepare({**ODD, "LDA": 208, "LDB": 80, "LDC": 96})
    assert trips.measure(4, 2, 1).check.passed


def test_parts_that_overlap_are_faster_and_plain_memory_is_slower(trips):
    trips.prepare(LARGE)
    plain, pinned, overlapped = (time_ms(trips.measure(*way)) for way in ((1, 1, 0), (1, 1, 1), (4, 3, 1)))
    assert overlapped < pinned < plain


def test_a_library_makes_the_same_way(trips):
    trips.prepare(LARGE)
    outcome = trips.worker.baseline("cublas", QUICK)
    assert outcome.check.passed
    assert "host to host" in outcome.timing.note
