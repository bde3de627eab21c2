"""The whole way from host to host: cut into parts, proved right on the host's own arrays, timed by its clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cuda_rig import QUICK, Rig, make_rig, product
from fake_cublaslt import PretendedLt, install_lt_bindings
from fake_pycuda import Behaviour
from specs import array, gemm_spec, scalar

from sweeper.backend.cuda import trip as trip_module
from sweeper.device import target
from sweeper.errors import ConfigError, KernelError
from sweeper.expressions import parse
from sweeper.kernel.trip import trip as described
from sweeper.model import KernelSpec, Point, Status, TripSpec
from sweeper.problem import resolve
from sweeper.problem.slabs import trip_plan
from sweeper.resources import resources

DIMS = {"M": 20, "N": 12, "K": 8}
TRIP = TripSpec("M", parse("chunks"), parse("streams"), parse("pinned"))
PARAMS = {"tile": (8,), "chunks": (1, 3), "streams": (1, 2), "pinned": (0, 1)}


def spec(**changes: Any) -> KernelSpec:
    return gemm_spec(params=PARAMS, trip=TRIP, **changes)


def point(chunks: int = 1, streams: int = 1, pinned: int = 0) -> Point:
    return Point.of({"tile": 8, "chunks": chunks, "streams": streams, "pinned": pinned})


# Cutting


def plan(chunks: int, kernel: KernelSpec | None = None, **given: int):
    kernel, at = kernel or spec(), point(chunks, **given)
    return trip_plan(kernel, resolve(kernel, DIMS, at, seed=1), at, at.params)


def test_rows_are_dealt_out_and_the_last_part_has_what_is_left():
    cut = plan(3)
    assert [slab.problem.dims["M"] for slab in cut.slabs] == [7, 7, 6]
    assert [slab.offsets for slab in cut.slabs] == [
        {"A": 4 * 8 * row, "C": 4 * 12 * row} for row in (0, 7, 14)
    ]
    assert [(part.array, part.nbytes) for slab in cut.slabs for part in slab.reads] == [
        ("A", 4 * 8 * rows) for rows in (7, 7, 6)
    ]
    assert [(part.array, part.nbytes) for part in cut.whole] == [("B", 4 * 8 * 12)]
    assert str(plan(3, streams=2, pinned=1)) == "host to host, pinned, 3 parts on 2 streams"


def test_there_are_no_more_parts_than_rows():
    assert len(plan(50).slabs) == 20


def test_rows_that_lie_apart_are_copied_with_what_lies_between_them():
    apart = array("A", ["M", "K"])
    kernel = spec()
    kernel = replace(kernel, args=(replace(apart, pitch=parse(10)), *kernel.args[1:]))
    sizes = [part.nbytes for slab in plan(2, kernel).slabs for part in slab.reads]
    # Ten rows of ten elements; behind the very last row there is no gap.
    assert sizes == [4 * 10 * 10, 4 * (10 * 10 - 2)]


def test_no_part_is_no_plan():
    with pytest.raises(ConfigError, match="0 chunks on 1 streams"):
        plan(0)


def test_no_time_is_predicted_of_a_trip():
    known = target("h200")
    assert resources(spec(), point(), DIMS, known, flops=1000, bytes=1000).predicted_ms is None
    assert resources(gemm_spec(), Point.of({"tile": 8}), DIMS, known, flops=1000).predicted_ms is not None


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"axis": "M", "chunk": 2}, "unknown key \\(did you mean 'chunks'"),
        ({"axis": "P"}, "none of the sizes M, N, K"),
        ({}, "none of the sizes M, N, K"),
        ("M", "is not a mapping"),
        ({"axis": "N"}, "C is written and its first size is M, not N"),
    ],
)
def test_a_trip_that_the_arguments_do_not_allow_is_refused(node, said):
    with pytest.raises(KernelError, match=said):
        described(node, ("M", "N", "K"), gemm_spec().args, uncuttable="", where="here")


@pytest.mark.parametrize("direction", ["inout", "scratch"])
def test_what_is_updated_in_place_or_shared_by_parts_cannot_be_cut(direction):
    arguments = (array("A", ["M"]), array("y", ["M"], direction), array("C", ["M"], "out"), scalar("M", "M"))
    with pytest.raises(KernelError, match=f"y is {direction}"):
        described({"axis": "M"}, ("M",), arguments, uncuttable="", where="here")


@pytest.mark.parametrize("what", ["clusters", "tensor maps"])
def test_a_launch_that_covers_the_whole_array_cannot_be_cut(what):
    with pytest.raises(KernelError, match=f"a kernel with {what} cannot be cut"):
        described({"axis": "M"}, ("M", "N", "K"), gemm_spec().args, uncuttable=what, where="here")


def test_what_a_trip_does_not_say_is_the_plainest_way():
    made = described({"axis": "M"}, ("M", "N", "K"), gemm_spec().args, uncuttable="", where="here")
    assert [made.chunks.text, made.streams.text, made.pinned.text] == ["1", "1", "0"]


# Running


@pytest.fixture
def rig(tmp_path, monkeypatch) -> Rig:
    return make_rig(tmp_path, monkeypatch).prepared(spec(), DIMS)


@pytest.mark.parametrize(("chunks", "streams", "pinned"), [(1, 1, 0), (1, 1, 1), (3, 1, 1), (3, 2, 1)])
def test_every_way_to_cut_it_gives_the_right_result_on_the_host(rig, chunks, streams, pinned):
    behaviour = Behaviour(product)
    outcome = rig.measure(behaviour, point=point(chunks, streams, pinned))
    assert outcome.check.passed
    assert outcome.check.checked == DIMS["M"] * DIMS["N"]
    rows = [launch["numbers"][3] for launch in behaviour.launches[:chunks]]
    assert rows == {1: [20], 3: [7, 7, 6]}[chunks]
    assert outcome.timing.method == "host clock"
    assert outcome.timing.note.startswith("host to host, ")
    assert len(outcome.timing.samples_ms) >= QUICK.min_samples


def test_the_grid_of_a_part_is_that_of_its_rows(rig):
    behaviour = Behaviour(product)
    rig.measure(behaviour, point=point(3, 1, 1))
    assert [launch["grid"] for launch in behaviour.launches[:3]] == [(2, 1, 1)] * 3


def test_pageable_memory_is_copied_by_plain_calls_and_pinned_memory_beside_launches(rig, monkeypatch):
    later: list[int] = []
    real = rig.driver.memcpy_htod_async
    monkeypatch.setattr(rig.driver, "memcpy_htod_async", lambda *args: later.append(args[0]) or real(*args))
    rig.measure(point=point(1, 1, 0))
    assert not later
    rig.measure(point=point(3, 2, 1))
    assert later


def test_the_hosts_arrays_are_made_once_of_each_kind(rig):
    for _ in range(2):
        rig.measure(point=point(3, 2, 1))
    assert len(rig.driver.pinned) == 3


def test_no_pinned_memory_is_a_failure_of_the_configuration(rig):
    rig.driver.most_pinned = 0
    assert rig.failure(point=point(1, 1, 1)).status is Status.OUT_OF_MEMORY
    assert rig.measure(point=point(1, 1, 0)).check.passed


def test_other_streams_wait_for_the_arrays_that_all_of_them_need(rig):
    rig.measure(point=point(3, 2, 1))
    assert rig.driver.waits, "an event of the first stream"
    assert all(stream is not rig.cuda._device.stream for stream, _ in rig.driver.waits)


@pytest.mark.parametrize("way", ["_to_device", "_to_host"])
@pytest.mark.parametrize("name", ["A", "B", "C"])
def test_a_copy_that_is_left_out_is_found(rig, monkeypatch, way, name):
    real = getattr(trip_module.Trip, way)

    def forgetful(self, part, stream):
        if part.array != name or part.offset != 0:
            real(self, part, stream)

    monkeypatch.setattr(trip_module.Trip, way, forgetful)
    if (name == "C") == (way == "_to_host"):
        assert rig.failure(point=point(3, 2, 1)).status is Status.WRONG_RESULT
        monkeypatch.undo()
        rig.install()
    assert rig.measure(point=point(3, 2, 1)).check.passed, "and what it damaged is mended"


def test_a_kernel_that_is_wrong_for_a_part_is_found(rig):
    def ends_early(memory, a, b, c, m, n, k):
        product(memory, a, b, c, m, n, k)[-1] += m == 6

    assert rig.failure(ends_early, point=point(3, 1, 1)).status is Status.WRONG_RESULT
    assert rig.measure(ends_early, point=point(1, 1, 1)).check.passed


def test_a_hopeless_one_is_not_sampled_in_full(rig, monkeypatch):
    monkeypatch.setattr(trip_module.Trip, "timed_ms", lambda self: 2.0)
    many = replace(QUICK, min_samples=40, max_samples=50, stop_above_ms=1.0)
    outcome = rig.measure(point=point(), protocol=many)
    assert len(outcome.timing.samples_ms) == 2
    assert outcome.timing.stopped_by == "early"


def test_a_library_makes_the_same_way_in_one_part(rig, monkeypatch):
    install_lt_bindings(PretendedLt(rig.driver), monkeypatch)
    outcome = rig.cuda.baseline("cublaslt", QUICK)
    assert outcome.check.passed
    assert outcome.timing.method == "host clock"
    assert outcome.timing.note.startswith("host to host, pinned, 1 part on 1 stream")
