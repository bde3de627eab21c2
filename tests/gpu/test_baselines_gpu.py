"""On a GPU: NVIDIA's libraries beside the kernels, and the copies to the device and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median

import pytest
from test_kernel import shipped

from sweeper.backend.base import MeasureProtocol, Outcome
from sweeper.device.present import why_no_gpu
from sweeper.kernel.description import load
from sweeper.paths import conf_dir
from sweeper.worker.pool import DeviceWorker

pytestmark = pytest.mark.skipif(bool(why_no_gpu(ask=True)), reason=str(why_no_gpu(ask=True)))

QUICK = MeasureProtocol(warmup_ms=5.0, min_samples=10, max_samples=40, max_seconds=0.5)
# Nothing of it is a multiple of a tile, rows are aligned to 4 bytes only.
ODD = {"M": 131, "N": 77, "K": 201}
SQUARE = {"M": 1024, "N": 1024, "K": 1024}


@pytest.fixture(scope="module")
def worker() -> Iterator[DeviceWorker]:
    worker = DeviceWorker("cuda")
    worker.open()
    yield worker
    worker.close()


def prepare(worker: DeviceWorker, dims: dict[str, int], dtype: str = "float32") -> None:
    path = conf_dir() / "kernel" / "tiled.yaml"
    worker.prepare(load({**shipped(path), "dtype": dtype}, path), dims, seed=3)


def library(worker: DeviceWorker, name: str = "cublaslt", protocol: MeasureProtocol = QUICK) -> Outcome:
    return worker.baseline(name, protocol)


def time_ms(outcome: Outcome) -> float:
    assert outcome.timing is not None
    return median(outcome.timing.samples_ms)


@pytest.mark.parametrize("name", ["cublas", "cublaslt"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("dims", [ODD, SQUARE], ids=["odd", "square"])
def test_a_library_is_right_in_every_class(worker, dims, dtype, name):
    prepare(worker, dims, dtype)
    outcome = library(worker, name)
    assert outcome.check.passed
    assert outcome.check.checked == dims["M"] * dims["N"]
    assert outcome.check.error_ratio < 1


@pytest.mark.parametrize("name", ["cublas", "cublaslt"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_batch_of_products_is_right(worker, name, dtype):
    path = conf_dir() / "kernel" / "tiled.yaml"
    node = shipped(path)
    sizes = {"A": ["BATCH", "M", "K"], "B": ["BATCH", "K", "N"], "C": ["BATCH", "M", "N"]}
    args = [{**a, "shape": sizes[a["name"]]} if a["name"] in sizes else a for a in node["args"]]
    changes = {
        "dims": {"BATCH": 5, **node["dims"]},
        "args": args,
        "reference": {"contraction": "bmk,bkn->bmn"},
        "dtype": dtype,
    }
    worker.prepare(load({**node, **changes}, path), {**ODD, "LDC": 80}, seed=3)
    outcome = library(worker, name)
    assert outcome.check.passed
    assert outcome.check.checked == 5 * ODD["M"] * ODD["N"]


def test_whole_numbers_are_computed_exactly(worker):
    prepare(worker, SQUARE, "int8")
    assert library(worker).check.error_ratio == 0


@pytest.mark.parametrize("name", ["cublas", "cublaslt"])
def test_rows_that_lie_apart_are_no_obstacle(worker, name):
    prepare(worker, {**SQUARE, "LDA": 1032, "LDB": 1025, "LDC": 1040})
    assert library(worker, name).check.passed


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_best_proposal_is_no_slower_than_the_default(worker, dtype):
    prepare(worker, SQUARE, dtype)
    assert time_ms(library(worker)) < 1.1 * time_ms(library(worker, "cublas"))


def test_the_row_says_which_proposal_it_is(worker):
    prepare(worker, SQUARE)
    outcome = library(worker)
    told = outcome.details["library"]
    assert 1 <= told["heuristic"] <= told["proposed"] <= 16
    assert told["ran"] == told["proposed"] - sum(told["failed"].values())
    assert told["algorithm"]["id"] >= 0
    assert told["version"].count(".") == 2
    assert f"heuristic {told['heuristic']}" in outcome.note
    assert min(told["glances_ms"]) == pytest.approx(time_ms(outcome), rel=0.25)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_no_proposal_rounds_parts_of_a_sum_to_sixteen_bits(worker, dtype):
    prepare(worker, {"M": 1025, "N": 1025, "K": 1025}, dtype)
    assert library(worker).details["library"]["failed"] == {}


def test_float32_is_not_computed_in_tf32(worker):
    """TF32 keeps 11 bits: its errors would be far beyond the bound of float32."""
    prepare(worker, {"M": 512, "N": 512, "K": 64})
    outcome = library(worker)
    assert outcome.details["library"]["math"] == "default"
    assert outcome.check.max_error < 1e-5


def test_copies_go_at_a_buss_speed_and_pinned_ones_are_no_slower(worker):
    prepare(worker, {"M": 4096, "N": 4096, "K": 4096})
    told = library(worker, "cublas", replace(QUICK, transfers=True)).details["transfers"]
    there, back = 2 * 4096**2 * 4, 4096**2 * 4
    for column, nbytes in (("h2d_pinned_ms", there), ("d2h_pinned_ms", back)):
        assert 2 < nbytes / told[column] / 1e6 < 1000, f"{column}: GB/s"
    assert told["h2d_pinned_ms"] < 1.1 * told["h2d_ms"]
    assert told["d2h_pinned_ms"] < 1.1 * told["d2h_ms"]
    assert told["cpu_ms"] > 0
