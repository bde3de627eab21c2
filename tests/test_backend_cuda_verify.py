"""Every launch is proved: results, guards, inputs, fresh answers, and where right results come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cuda_rig import POINT, QUICK, Rig, make_rig, product
from fake_pycuda import Behaviour
from specs import array, gemm_spec, launch, param_specs, scalar, spec

from sweeper.backend.base import Outcome
from sweeper.errors import KernelError, TrialFailed
from sweeper.model import KernelSpec, Launch, ReferenceSpec, Stage, Status
from sweeper.problem import Problem, resolve
from sweeper.resources.geometry import launch_of


@pytest.fixture
def rig(tmp_path, monkeypatch):
    return make_rig(tmp_path, monkeypatch)


# --- Wrong kernels ------------------------------------------------------------------------------------


def writes_half(memory, *args):
    out = product(memory, *args)
    out[6:] = np.float32(np.nan)
    return out


def one_nan(memory, *args):
    product(memory, *args)[3, 4] = np.nan


def one_wrong(memory, *args):
    product(memory, *args)[11, 9] += 0.01


def overflows(memory, *args):
    product(memory, *args)[0, 0] = np.inf


@pytest.mark.parametrize("run", [writes_half, one_nan, one_wrong, overflows])
def test_a_wrong_result_fails_with_its_check(rig, run):
    failure = rig.prepared().failure(run)
    assert (failure.status, failure.stage) == (Status.WRONG_RESULT, Stage.VERIFY)
    assert failure.details["check"].wrong >= 1
    assert "C[" in failure.reason


def test_a_kernel_that_does_nothing_fails_after_one_that_was_right(rig):
    rig.prepared().measure()
    failure = rig.failure(lambda *_: None)
    assert failure.status is Status.WRONG_RESULT
    assert "120 still hold what was there before the launch" in failure.reason


def test_a_write_past_the_end_is_told_by_bytes_and_place(rig):
    def past(memory, a, b, c, m, n, k):
        product(memory, a, b, c, m, n, k)
        memory.array(c + 4 * m * n, (3,), np.float32)[:] = 1

    assert (
        "wrote outside C: 12 bytes after its end, the nearest 0 bytes away"
        in rig.prepared().failure(past).reason
    )


def test_a_write_before_the_start_is_told(rig):
    def before(memory, a, b, c, m, n, k):
        product(memory, a, b, c, m, n, k)
        memory.array(b - 8, (1,), np.float32)[:] = 1

    assert (
        "wrote outside B: 4 bytes before its start, the nearest 4 bytes away"
        in rig.prepared().failure(before).reason
    )


def test_a_write_into_an_input_is_told_and_undone(rig):
    def careless(memory, a, b, c, m, n, k):
        product(memory, a, b, c, m, n, k)
        memory.array(a, (1,), np.float32)[:] += 1

    assert rig.prepared().failure(careless).reason == "wrote into its input A"
    assert rig.measure().check.passed


def test_damage_done_only_while_timed_is_found_afterwards(rig):
    launches = []

    def late(memory, a, b, c, m, n, k):
        product(memory, a, b, c, m, n, k)
        launches.append(1)
        if len(launches) > 4:
            memory.array(c + 4 * m * n, (1,), np.float32)[:] = 1

    assert "wrote outside C" in rig.prepared().failure(late).reason


def test_a_kernel_that_answers_from_memory_is_found_out_by_fresh_inputs(rig):
    kept = []

    def cached(memory, a, b, c, m, n, k):
        if not kept:
            kept.append(product(memory, a, b, c, m, n, k).copy())
        memory.array(c, (m, n), np.float32)[:] = kept[0]

    failure = rig.prepared().failure(cached)
    assert failure.status is Status.WRONG_RESULT
    assert rig.measure().check.passed


def test_an_error_in_a_later_launch_is_found(rig):
    launches = []

    def second_is_wrong(memory, *args):
        out = product(memory, *args)
        launches.append(1)
        if len(launches) == 2:
            out[0, 0] += 1

    assert rig.prepared().failure(second_is_wrong).status is Status.WRONG_RESULT


def jitters(memory, *args):
    out = product(memory, *args)
    jitters.count += 1
    out[0, 0] *= 1 + (jitters.count % 2) * 1e-6


jitters.count = 0


def test_results_that_differ_within_the_bound_are_noted(rig):
    note = rig.prepared().measure(jitters).note
    assert note == "non-deterministic: 1 elements differ between launches on the same inputs"


def test_declared_differences_are_not_noted(rig):
    outcome = rig.prepared().measure(jitters, replace(QUICK, allow_nondeterministic=True))
    assert outcome.note == ""


def test_a_failed_trial_leaves_the_next_one_alone(rig):
    def vandal(memory, a, b, c, m, n, k):
        memory.array(a, (m, k), np.float32)[:] = 7
        memory.array(b, (k, n), np.float32)[:] = 7

    rig.prepared().failure(vandal)
    assert rig.measure().check.passed


def test_fresh_inputs_are_named_where_they_found_something_out(rig):
    kept = []

    def cached(memory, a, b, c, m, n, k):
        if not kept:
            kept.append(product(memory, a, b, c, m, n, k).copy())
        memory.array(c, (m, n), np.float32)[:] = kept[0]

    assert rig.prepared().failure(cached).reason.endswith("(with A negated, after the timing)")


def test_an_input_that_was_negated_is_itself_again(rig):
    seen = []

    def watching(memory, a, b, c, m, n, k):
        product(memory, a, b, c, m, n, k)
        seen.append(memory.array(a, (m, k), np.float32).copy())

    rig.prepared().measure(watching)
    assert np.array_equal(seen[-1], -seen[0])
    rig.measure(watching)
    assert np.array_equal(seen[-2], seen[0])


# --- What stays on the device -------------------------------------------------------------------------

LARGE = {"M": 96, "N": 80, "K": 64}
# Records and digests.
SMALL_COPY_BYTES = 1000


def test_no_array_travels_between_host_and_device_once_all_is_prepared(rig):
    rig.prepared(dims=LARGE)
    rig.driver.host_copies.clear()
    rig.measure()
    assert max(rig.driver.host_copies) < SMALL_COPY_BYTES


def test_a_wrong_result_needs_no_array_on_the_host_either(rig):
    rig.prepared(dims=LARGE)
    rig.driver.host_copies.clear()
    rig.failure(lambda *_: None)
    assert max(rig.driver.host_copies) < SMALL_COPY_BYTES


def test_only_what_was_damaged_is_restored_from_the_host(rig):
    def careless(memory, a, b, c, m, n, k):
        product(memory, a, b, c, m, n, k)
        memory.array(b, (1,), np.float32)[:] += 1

    rig.prepared(dims=LARGE)
    rig.driver.host_copies.clear()
    assert rig.failure(careless).reason == "wrote into its input B"
    b_bytes, a_bytes = 64 * 80 * 4, 96 * 64 * 4
    assert b_bytes in rig.driver.host_copies
    assert a_bytes not in rig.driver.host_copies


def test_what_is_read_and_written_starts_afresh_without_the_host(rig):
    def triple(memory, x, n):
        memory.array(x, (n,), np.float32)[:] *= 3

    path = rig.folder / "triple.py"
    path.write_text("def reference(x):\n    return 3 * x\n")
    kernel = spec(
        "matmul",
        (array("x", ["N"], "inout"), scalar("n", "N")),
        reference=ReferenceSpec("python", "reference", path=path),
        dims=("N",),
        params=param_specs({"tile": (8,)}),
    )
    rig.prepared(kernel, {"N": 5000})
    rig.driver.host_copies.clear()
    assert rig.measure(triple, launch=Launch((32, 1, 1), (4, 1, 1), 0)).check.passed
    assert max(rig.driver.host_copies) < SMALL_COPY_BYTES


def test_a_write_into_what_it_is_judged_by_is_told_and_ends_the_process(rig):
    rig.prepared()
    reference = rig.cuda._prepared.judge.comparison._outputs[0].reference

    def forger(memory, *args):
        out = product(memory, *args)
        wanted = memory.array(reference.wanted.values, out.shape, np.float64)
        out += 1
        wanted[:] = out

    failure = rig.failure(forger)
    assert failure.status is Status.WRONG_RESULT
    assert "the reference of C" in failure.reason
    assert failure.details["sticky"] is True


def test_a_far_write_that_makes_a_right_result_look_wrong_ends_the_process(rig):
    rig.prepared()
    reference = rig.cuda._prepared.judge.comparison._outputs[0].reference

    def vandal(memory, *args):
        product(memory, *args)
        memory.array(reference.wanted.values, (1,), np.float64)[:] = 1e6

    failure = rig.failure(vandal)
    assert failure.reason.endswith("it wrote into the reference of C")
    assert failure.details["sticky"] is True


def test_where_the_time_went_is_told_of_right_and_of_wrong_results(rig):
    phases = rig.prepared().measure().phases_s
    assert set(phases) == {"load", "verify", "warmup", "measure", "finish"}
    assert all(seconds > 0 for seconds in phases.values())
    assert set(rig.failure(lambda *_: None).details["phases_s"]) == {"load", "verify"}


# --- References ---------------------------------------------------------------------------------------


def test_a_reference_outlives_the_process_in_the_scratch_folder(rig, monkeypatch):
    rig.prepared(scratch=rig.folder)
    rig.cuda.close()

    def fail(self, inputs):
        raise AssertionError("computed again")

    monkeypatch.setattr(Problem, "reference", fail)
    assert rig.prepared(scratch=rig.folder).measure().check.passed


def test_an_exact_reference_outlives_the_process_too(rig, monkeypatch):
    kernel = gemm_spec(dtype="int8", output="int32")
    rig.prepared(kernel, scratch=rig.folder)
    rig.cuda.close()
    monkeypatch.setattr(Problem, "reference", None)
    rig.prepared(kernel, scratch=rig.folder)
    assert rig.failure(lambda *_: None).status is Status.WRONG_RESULT


def test_only_the_last_problems_reference_is_kept(rig):
    rig.prepared(scratch=rig.folder)
    rig.cuda.prepare(rig.spec, resolve(rig.spec, {"M": 4, "N": 4, "K": 4}, POINT, seed=0))
    assert len(list(rig.folder.glob("reference-*"))) == 2


def test_a_scratch_folder_that_cannot_be_written_is_no_error(rig):
    assert rig.prepared(scratch=rig.folder / "missing").measure().check.passed


def plain_spec(**changes: Any) -> KernelSpec:
    """y = 2x, its reference a plain kernel of the same source."""
    geometry = launch([32], ["ceil(N / 32)"])
    reference = ReferenceSpec("kernel", "plain", launch=geometry)
    fields = {"reference": reference, "params": param_specs({"tile": (8,)}), "launch": geometry, **changes}
    arguments = (array("x", ["N"]), array("y", ["N"], "out"), scalar("n", "N"))
    return spec("matmul", arguments, dims=("N",), **fields)


def doubled(memory, x, y, n):
    memory.array(y, (n,), np.float32)[:] = 2 * memory.array(x, (n,), np.float32)


def measure_plain(rig: Rig, plain: Callable[..., None], run: Callable[..., None] = doubled) -> Outcome:
    rig.driver.behaviours |= {"matmul": Behaviour(run), "plain": Behaviour(plain)}
    geometry = launch_of(rig.spec, POINT, {"N": 100}, rig.target)
    return rig.cuda.measure(POINT, geometry, rig.build("matmul", "plain"), QUICK)


def test_a_plain_kernel_may_be_the_reference(rig):
    rig.prepared(plain_spec(), {"N": 100})
    assert measure_plain(rig, doubled).check.passed
    assert rig.driver.behaviours["plain"].launches[0]["grid"] == (4, 1, 1)
    with pytest.raises(TrialFailed) as caught:
        measure_plain(rig, doubled, lambda *_: None)
    assert caught.value.status is Status.WRONG_RESULT


def test_a_plain_kernel_that_writes_no_numbers_is_a_kernel_error(rig):
    rig.prepared(plain_spec(), {"N": 100})
    with pytest.raises(KernelError, match="not finite"):
        measure_plain(rig, lambda *_: None)


def test_a_plain_kernel_that_is_not_there_is_a_kernel_error(rig):
    rig.prepared(plain_spec(), {"N": 100})
    rig.driver.behaviours["matmul"] = Behaviour(doubled)
    with pytest.raises(KernelError, match="plain"):
        rig.cuda.measure(POINT, Launch((32, 1, 1), (4, 1, 1), 0), rig.build("matmul"), QUICK)


def test_a_plain_kernel_without_a_launch_is_a_kernel_error(rig):
    rig.prepared(plain_spec(reference=ReferenceSpec("kernel", "plain")), {"N": 100})
    with pytest.raises(KernelError, match=r"reference\.launch"):
        measure_plain(rig, doubled)


def test_what_a_plain_kernel_damages_is_no_candidates_fault(rig):
    def careless(memory, x, y, n):
        doubled(memory, x, y, n)
        memory.array(x, (n,), np.float32)[:] = 7

    rig.prepared(plain_spec(), {"N": 100})
    assert measure_plain(rig, careless).check.passed
