"""cuBLASLt's heuristics race for the baseline: each proved right, the fastest stands for the library."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest
from cuda_rig import QUICK, Rig, make_rig
from fake_cublaslt import (
    PretendedLt,
    Proposal,
    install_lt_bindings,
    install_lt_library,
)
from specs import array, contraction, gemm_spec, launch, saxpy_spec, spec

from sweeper.backend.base import Outcome
from sweeper.backend.cuda.cublaslt import WORKSPACE_BYTES
from sweeper.errors import SetupError, TrialFailed
from sweeper.model import KernelSpec, Stage, Status

LONG_AND_THIN = {"M": 24, "N": 8, "K": 40}
PREFERENCES = {"workspace": 1, "reduction": 3, "a": 5, "b": 6, "c": 7, "d": 8}


@pytest.fixture
def rig(tmp_path, monkeypatch):
    return make_rig(tmp_path, monkeypatch)


@pytest.fixture(params=[install_lt_bindings, install_lt_library], ids=["bindings", "library"])
def library(request, rig, monkeypatch) -> PretendedLt:
    pretended = PretendedLt(rig.driver)
    request.param(pretended, monkeypatch)
    return pretended


@pytest.fixture
def bound(rig, monkeypatch) -> PretendedLt:
    """The library by its bindings, where it does not matter by what."""
    pretended = PretendedLt(rig.driver)
    install_lt_bindings(pretended, monkeypatch)
    return pretended


def baseline(rig: Rig, kernel: KernelSpec | None = None, **protocol) -> Outcome:
    rig.prepared(kernel or gemm_spec(), LONG_AND_THIN)
    return rig.cuda.baseline("cublaslt", replace(QUICK, **protocol))


def failure(rig: Rig, kernel: KernelSpec | None = None) -> TrialFailed:
    with pytest.raises(TrialFailed) as caught:
        baseline(rig, kernel)
    return caught.value


def told(outcome: Outcome):
    return outcome.details["library"]


def test_a_product_of_unequal_sizes_is_right_in_row_major_order(rig, library):
    outcome = baseline(rig)
    assert outcome.check.passed
    assert outcome.check.checked == 24 * 8
    assert (outcome.build, outcome.launch) == (None, None)


@pytest.mark.parametrize(
    ("name", "output", "compute", "scale"),
    [
        ("float64", None, 70, 1),
        ("float32", None, 68, 0),
        ("tf32", None, 77, 0),
        ("tf32x3", None, 68, 0),
        ("float16", None, 68, 0),
        ("bfloat16", "float32", 68, 0),
        ("float8_e4m3", "bfloat16", 68, 0),
        ("int8", "int32", 72, 10),
    ],
)
def test_every_class_is_computed_in_its_own_precision(rig, library, name, output, compute, scale):
    outcome = baseline(rig, gemm_spec(dtype=name, output=output))
    assert outcome.check.passed
    assert library.asked["compute"] == (compute, scale)
    assert ("TF32" in told(outcome)["math"]) == (name == "tf32")


@pytest.mark.parametrize(
    ("name", "output", "mask"),
    [("float32", None, None), ("bfloat16", None, 2), ("float16", None, 2), ("bfloat16", "float32", None)],
)
def test_sixteen_bit_results_may_not_be_the_place_where_parts_of_a_sum_are_added(
    rig, bound, name, output, mask
):
    """CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE only; in place would round each part to 8 or 11 bits."""
    baseline(rig, gemm_spec(dtype=name, output=output))
    assert bound.asked["preference"].get(PREFERENCES["reduction"]) == mask


FAST_SUMS = 25  # CUBLASLT_MATMUL_DESC_FAST_ACCUM


def test_float8_is_proposed_with_sums_in_float32_and_with_sums_in_the_tensor_cores(rig, bound):
    """Both are within the bound of the class, so the faster one stands for the library, and says which it is."""
    bound.proposals = [Proposal(time_ms=0.2), Proposal(time_ms=0.1)]
    outcome = baseline(rig, gemm_spec(dtype="float8_e4m3", output="bfloat16"))
    assert outcome.check.passed
    assert (told(outcome)["proposed"], told(outcome)["heuristic"]) == (4, 2)
    assert [bool(made.get(FAST_SUMS)) for made in bound.operations] == [False, True]
    assert bound.asked["preference"][PREFERENCES["reduction"]] == 2
    assert ("fast accumulation" in outcome.note) == bool(told(outcome).get("fast_sums"))


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int8"])
def test_other_classes_have_no_such_choice(rig, bound, name):
    baseline(rig, gemm_spec(dtype=name, output="int32" if name == "int8" else None))
    assert [made.get(FAST_SUMS) for made in bound.operations] == [None]


def test_sixteen_proposals_are_asked_for_with_a_workspace_of_32_mib(rig, bound):
    baseline(rig)
    assert bound.asked["count"] == 16
    assert bound.asked["preference"][PREFERENCES["workspace"]] == WORKSPACE_BYTES == 32 * 2**20


def test_the_alignment_of_each_array_is_told_as_it_is(rig, bound, monkeypatch):
    rig.prepared(gemm_spec(), LONG_AND_THIN)
    arrays = rig.cuda._prepared.sets.first.arrays
    monkeypatch.setattr(arrays["A"], "pointer", arrays["A"].pointer + 16)
    monkeypatch.setattr(arrays["B"], "pointer", arrays["B"].pointer + 4)
    with pytest.raises(TrialFailed):  # the arrays are elsewhere now, so nothing is right
        rig.cuda.baseline("cublaslt", QUICK)
    preference = bound.asked["preference"]
    # Operands change places.
    assert [preference[PREFERENCES[x]] for x in "abcd"] == [4, 16, 256, 256]


def test_layouts_are_those_of_the_transposed_product(rig, bound):
    baseline(rig)
    # Type, rows, columns, leading dimension of Bᵀ (8×40), Aᵀ (40×24) and Cᵀ (8×24).
    assert bound.asked["layouts"] == [(0, 8, 40, 8), (0, 40, 24, 40), (0, 8, 24, 8)]


@pytest.mark.parametrize(
    ("text", "a", "b", "c"),
    [
        ("km,kn->mn", ["K", "M"], ["K", "N"], ["M", "N"]),
        ("mk,nk->mn", ["M", "K"], ["N", "K"], ["M", "N"]),
        ("mk,kn->nm", ["M", "K"], ["K", "N"], ["N", "M"]),
    ],
)
def test_a_transposed_operand_or_result_is_a_product_too(rig, bound, text, a, b, c):
    arguments = (array("A", a), array("B", b), array("C", c, "out"))
    fields = {"reference": contraction(text), "dims": ("M", "N", "K"), "launch": launch([1], [1])}
    assert baseline(rig, spec("other", arguments, **fields)).check.passed


def test_a_batch_of_products_is_one_call(rig, library):
    arguments = (
        array("A", ["BATCH", "M", "K"]),
        array("B", ["BATCH", "K", "N"]),
        array("C", ["BATCH", "M", "N"], "out"),
    )
    dims = {"BATCH": 3, "M": None, "N": None, "K": None}
    kernel = spec(
        "batch", arguments, reference=contraction("bmk,bkn->bmn"), dims=dims, launch=launch([1], [1])
    )
    outcome = baseline(rig, kernel)
    assert outcome.check.passed
    assert outcome.check.checked == 3 * 24 * 8


def test_the_fastest_that_is_right_stands_for_the_library(rig, library):
    library.proposals = [
        Proposal(time_ms=0.4),
        Proposal(time_ms=0.1, wrong=True),
        Proposal(time_ms=0.2, workspace_bytes=4096, config={"id": 31, "tile": 20, "split_k": 3}),
        Proposal(time_ms=0.15, status=15),
        Proposal(time_ms=0.3),
        Proposal(time_ms=0.05, state=15),
    ]
    outcome = baseline(rig)
    assert median(outcome.timing.samples_ms) == pytest.approx(0.2, rel=0.05)
    details = told(outcome)
    assert (details["heuristic"], details["workspace_bytes"]) == (3, 4096)
    assert details["algorithm"]["id"] == 31
    assert details["algorithm"]["split_k"] == 3
    assert (details["proposed"], details["ran"]) == (5, 3), "one was marked unusable by the library itself"
    assert details["failed"] == {"wrong_result": 1, "infeasible": 1}
    assert details["glances_ms"] == pytest.approx([0.4, 0.2, 0.3], rel=0.05)
    for said in (
        "heuristic 3",
        "algorithm 31",
        "split-K 3",
        "workspace 4096 B",
        "1 wrong_result",
        "CUBLAS_COMPUTE_32F",
    ):
        assert said in outcome.note


def test_versions_and_names_are_the_librarys_own(rig, bound):
    details = told(baseline(rig))
    assert details["version"] == "13.1.2"
    assert details["algorithm"] == {"id": 66, "tile": "128x128", "stages": "13", "split_k": 1}


def test_only_those_near_the_fastest_are_sampled_in_full(rig, bound):
    times = [0.40, 0.21, 0.205, 0.20, 0.202, 0.9]
    bound.proposals = [Proposal(time_ms=ms) for ms in times]
    outcome = baseline(rig, min_samples=20, max_samples=20)
    assert "3 measured in full" in outcome.note
    assert len(outcome.timing.samples_ms) == 20
    launches = [proposal.launches for proposal in bound.proposals]
    assert max(launches[n] for n in (0, 1, 5)) < 20 < min(launches[n] for n in (2, 3, 4)), launches
    assert median(outcome.timing.samples_ms) == pytest.approx(0.2, rel=0.01)


def test_a_long_product_is_not_sampled_to_be_glanced_at(rig, bound):
    bound.proposals = [Proposal(time_ms=40.0), Proposal(time_ms=20.0), Proposal(time_ms=60.0)]
    baseline(rig)
    assert [bound.proposals[n].launches for n in (0, 2)] == [1, 1]


def test_warm_times_are_taken_where_the_protocol_asks_for_them(rig, bound):
    bound.proposals = [Proposal(time_ms=0.3), Proposal(time_ms=0.2)]
    assert baseline(rig, cache="warm").timing.cache == "warm"
    rig.cuda.close()
    timing = baseline(rig, cache="both").timing
    assert (timing.cache, timing.beside.cache) == ("cold", "warm")


def test_where_every_proposal_is_wrong_the_row_says_so(rig, library):
    library.proposals = [Proposal(wrong=True), Proposal(wrong=True)]
    assert failure(rig).status is Status.WRONG_RESULT


def test_a_single_proposal_is_measured_like_any_configuration(rig, library):
    library.proposals = [Proposal(wrong=True)]
    assert failure(rig).status is Status.WRONG_RESULT


@pytest.mark.parametrize(("proposals", "status"), [([], 0), ([Proposal(state=15)], 0), ([Proposal()], 15)])
def test_a_product_that_the_library_declines_has_no_equivalent(rig, library, proposals, status):
    library.proposals, library.heuristic_status = proposals, status
    failed = failure(rig)
    assert failed.status is Status.INFEASIBLE
    assert "float32 at 24×8×40" in failed.reason


def test_a_proposal_that_destroys_the_context_ends_the_race(rig, library):
    library.proposals = [Proposal(loses_the_context=True), Proposal()]
    failed = failure(rig)
    assert failed.details["sticky"]
    assert library.proposals[1].launches == 0


def test_nothing_of_the_race_is_left_behind(rig, library):
    library.proposals = [Proposal(), Proposal(time_ms=0.2)]
    rig.prepared(gemm_spec(), LONG_AND_THIN)
    rig.cuda.baseline("cublaslt", QUICK)
    before = rig.driver.memory.used
    rig.cuda.baseline("cublaslt", QUICK)
    assert rig.driver.memory.used == before
    assert [held["kind"] for held in library.live.values()] == [""], "the handle alone is kept"
    assert library.streams == {rig.driver.Stream.handle}
    rig.cuda.close()
    assert not library.live


def test_no_memory_for_the_workspace_is_a_failure_of_the_row(rig, bound):
    rig.driver.memory.total = 24 << 20
    assert failure(rig).status is Status.OUT_OF_MEMORY


def test_a_library_that_does_not_start_is_a_failure_of_its_row(rig, library):
    library.create_status = 1
    failed = failure(rig)
    assert (failed.status, failed.stage) == (Status.INFEASIBLE, Stage.SPACE)
    assert "cuBLASLt cannot be started" in failed.reason
    assert not isinstance(failed, SetupError)


def test_what_is_no_product_has_no_equivalent(rig, bound, tmp_path):
    (tmp_path / "saxpy.py").write_text("def reference(a, x, y):\n    return a * x + y\n")
    kernel = saxpy_spec(tmp_path / "saxpy.py")
    rig.prepared(kernel, {"N": 8})
    with pytest.raises(TrialFailed, match="no matrix product"):
        rig.cuda.baseline("cublaslt", QUICK)
