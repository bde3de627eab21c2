"""The same problem prepared for one kernel after another: arrays and reference are made once, and judge all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cuda_rig import DIMS, make_rig, product
from specs import gemm_spec

from sweeper.errors import TrialFailed
from sweeper.model import ReferenceSpec, Status
from sweeper.problem import resolve

# Records and digests.
SMALL_COPY_BYTES = 1000
LARGE = {"M": 96, "N": 80, "K": 64}


@pytest.fixture
def rig(tmp_path, monkeypatch):
    return make_rig(tmp_path, monkeypatch).prepared(dims=LARGE)


def prepare(rig, **changes):
    """Another kernel of the same problem, but for `changes`."""
    dims, seed = changes.pop("dims", LARGE), changes.pop("seed", 3)
    rig.spec = replace(gemm_spec(), name="another", digest="another", **changes)
    rig.problem = resolve(rig.spec, dims, rig.spec.default_point, seed=seed)
    rig.driver.host_copies.clear()
    rig.cuda.prepare(rig.spec, rig.problem)


def test_nothing_is_sent_to_the_device_again_for_another_kernel(rig):
    rig.measure()
    prepare(rig)
    rig.measure()
    assert max(rig.driver.host_copies) < SMALL_COPY_BYTES


def test_another_kernel_is_judged_by_what_is_right_all_the_same(rig):
    prepare(rig)
    assert rig.measure(product).check.passed

    def nearly(memory, a, b, c, m, n, k):
        product(memory, a, b, c, m, n, k)[3, 5] += 1

    failure = rig.failure(nearly)
    assert failure.status is Status.WRONG_RESULT


def test_what_one_kernel_damaged_is_whole_for_the_next(rig):
    def careless(memory, a, b, c, m, n, k):
        product(memory, a, b, c, m, n, k)
        memory.array(b, (1,), np.float32)[:] += 1

    assert "wrote into its input B" in rig.failure(careless).reason
    prepare(rig)
    assert rig.measure(product).check.passed


@pytest.mark.parametrize(
    "changes",
    [
        {"dims": DIMS},
        {"seed": 4},
        {"tolerance": 2 * gemm_spec().tolerance},
        {"reference": ReferenceSpec("contraction", "mk,kn->mn", digest="another")},
    ],
    ids=["sizes", "seed", "tolerance", "reference"],
)
def test_another_problem_or_another_bound_has_arrays_of_its_own(rig, changes):
    prepare(rig, **changes)
    inputs = rig.problem.inputs()
    assert inputs["A"].nbytes in rig.driver.host_copies


def test_a_problem_that_does_not_fit_leaves_nothing_to_go_on_with(rig, monkeypatch):
    monkeypatch.setattr(rig.driver, "mem_get_info", lambda: (0, 1 << 30))
    with pytest.raises(TrialFailed) as caught:
        prepare(rig, dims={"M": 4096, "N": 4096, "K": 4096})
    assert caught.value.status is Status.OUT_OF_MEMORY
    assert rig.cuda._prepared is None
