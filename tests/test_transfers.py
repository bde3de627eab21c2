"""Copies between host and device, and the host's own product, beside a kernel's time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cuda_rig import DIMS, QUICK, make_rig
from fake_cublaslt import PretendedLt, install_lt_bindings
from specs import gemm_spec, saxpy_spec

from sweeper.problem import host_product, resolve
from sweeper.problem.contraction import parse_contraction
from sweeper.problem.host_product import time_on_host

BOTH = replace(QUICK, transfers=True)
COPIES = ("h2d_ms", "d2h_ms", "h2d_pinned_ms", "d2h_pinned_ms")


@pytest.fixture
def rig(tmp_path, monkeypatch):
    return make_rig(tmp_path, monkeypatch)


def test_nothing_is_copied_unless_it_is_asked_for(rig):
    assert "transfers" not in rig.prepared().measure().details
    assert not rig.driver.pinned


def test_each_outcome_tells_the_times_of_its_problem(rig):
    told = rig.prepared().measure(protocol=BOTH).details["transfers"]
    assert set(told) == {*COPIES, "cpu_ms", "cpu_note"}
    assert all(told[name] > 0 for name in COPIES)
    assert told["cpu_ms"] > 0


def test_they_are_measured_once_a_problem(rig):
    first = rig.prepared().measure(protocol=BOTH).details["transfers"]
    assert rig.measure(protocol=BOTH).details["transfers"] == first
    assert len(rig.driver.pinned) == 1
    rig.cuda.close()
    assert rig.prepared(dims={**DIMS, "K": 16}).measure(protocol=BOTH).details["transfers"] != first


def test_a_library_is_told_the_same_as_the_kernels_beside_it(rig, monkeypatch):
    install_lt_bindings(PretendedLt(rig.driver), monkeypatch)
    first = rig.prepared().measure(protocol=BOTH).details["transfers"]
    assert rig.cuda.baseline("cublaslt", BOTH).details["transfers"] == first


def test_what_is_read_goes_there_and_what_is_written_comes_back(rig):
    rig.prepared()
    rig.driver.host_copies.clear()
    told = rig.measure(protocol=BOTH).details["transfers"]
    m, n, k = (DIMS[x] for x in "MNK")
    sizes = {4 * m * k, 4 * k * n, 4 * m * n}
    assert sizes <= set(rig.driver.host_copies)
    # The pretended bus moves 5e7 bytes a millisecond.
    assert told["h2d_pinned_ms"] == pytest.approx(4 * (m * k + k * n) / 5e7, abs=0.01)
    assert told["d2h_pinned_ms"] == pytest.approx(4 * m * n / 5e7, abs=0.01)


def test_without_pinned_memory_those_times_are_left_out(rig):
    rig.driver.most_pinned = 0
    told = rig.prepared().measure(protocol=BOTH).details["transfers"]
    assert set(told) == {"h2d_ms", "d2h_ms", "cpu_ms", "cpu_note"}


def test_a_kernel_that_updates_an_array_in_place_still_begins_with_its_input(rig):
    def saxpy(memory, n, a, x, y):
        memory.array(y, (n,), np.float32)[:] += np.float32(a) * memory.array(x, (n,), np.float32)

    rig.prepared(saxpy_spec(), {"N": 64})
    outcome = rig.measure(saxpy, protocol=BOTH, point=rig.spec.default_point)
    assert outcome.check.passed
    assert set(outcome.details["transfers"]) == set(COPIES), "there is no product that the host could do"


def host_time(dims, dtype="float32", **options):
    problem = resolve(gemm_spec(dtype=dtype, **options), dims, None, seed=1)
    return time_on_host(problem, problem.inputs())


def test_a_small_product_is_timed_whole():
    found = host_time({"M": 64, "N": 48, "K": 32})
    assert found.time_ms > 0
    assert found.note.startswith("NumPy float32, at most ")
    assert "rows" not in found.note


@pytest.mark.parametrize(
    ("dtype", "output", "kind"),
    [("float64", None, "float64"), ("bfloat16", None, "float32"), ("int8", "int32", "float32")],
)
def test_the_host_computes_in_the_kernels_type_where_its_blas_has_it(dtype, output, kind):
    assert host_time({"M": 16, "N": 16, "K": 16}, dtype, output=output).note.startswith(f"NumPy {kind}")


@pytest.mark.parametrize(
    ("seconds", "rows", "said"),
    [(1.0, [382, 382, 1000], ", scaled from 1000 of 4096 rows"), (5.0, [382, 382, 1528, 4096], "")],
)
def test_a_long_product_is_timed_on_its_first_rows_and_scaled(monkeypatch, seconds, rows, said):
    """With a host that takes a millisecond a row, whatever is in it."""
    now, computed = [0.0], []

    def contract(contraction, parts):
        computed.append(parts[0].shape[0])
        now[0] += 1e-3 * parts[0].shape[0]

    monkeypatch.setattr(host_product, "_contract", contract)
    problem = resolve(gemm_spec(), {"M": 4096, "N": 512, "K": 512}, None, seed=1)
    found = time_on_host(problem, problem.inputs(), seconds=seconds, clock=lambda: now[0])
    assert found.time_ms == pytest.approx(4096.0)
    assert computed == rows
    assert found.note.partition("threads")[2] == said


@pytest.mark.parametrize("text", ["mk,kn->mn", "mk,kn->nm", "mk,mn->kn"])
def test_the_host_computes_the_same_product(text):
    contraction = parse_contraction(
        text,
        [("A", (5, 3)), ("B", {"mk,mn->kn": (5, 4)}.get(text, (3, 4)))],
        ("C", {"mk,kn->mn": (5, 4), "mk,kn->nm": (4, 5)}.get(text, (3, 4))),
        where="here",
    )
    random = np.random.default_rng(1)
    parts = [random.random(tuple(contraction.sizes[x] for x in letters)) for letters in contraction.operands]
    np.testing.assert_allclose(host_product._contract(contraction, parts), np.einsum(text, *parts))


def test_how_many_threads_a_blas_may_take_is_what_it_is_told(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    assert "at most 1 threads" in host_time({"M": 4, "N": 4, "K": 4}).note
