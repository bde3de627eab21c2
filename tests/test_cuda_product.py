"""Large products get their reference on the GPU: proved on a sample, or left to the host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import device_model
import numpy as np
import pytest
from cuda_rig import Rig, make_rig
from fake_pycuda import FakeDriver
from specs import array, contraction, gemm_spec, launch, spec

from sweeper.backend.cuda import product as product_module
from sweeper.backend.cuda.product import Product, bound_coefficients, product_of
from sweeper.dtypes import dtype
from sweeper.errors import SetupError
from sweeper.model import KernelSpec, Launch
from sweeper.problem import Problem, resolve
from sweeper.problem.contraction import evaluate
from sweeper.problem.rounding import contraction_bound

DIMS = {"M": 24, "N": 20, "K": 40}
CLASSES = [
    ("float64", None),
    ("float32", None),
    ("tf32", None),
    ("float16", None),
    ("float16", "float32"),
    ("bfloat16", None),
    ("int8", "int32"),
    ("int8", "float32"),
]


@pytest.fixture
def rig(tmp_path, monkeypatch):
    # Everything is large here.
    monkeypatch.setattr(product_module, "_LEAST_MULTIPLICATIONS", 1)
    return make_rig(tmp_path, monkeypatch)


def problem_of(kernel: KernelSpec, dims: dict[str, int] = DIMS) -> Problem:
    return resolve(kernel, dims, kernel.default_point, seed=3)


def found(kernel: KernelSpec, dims: dict[str, int] = DIMS) -> Product | None:
    problem = problem_of(kernel, dims)
    return product_of(problem, problem.inputs())


def other_axes(text: str) -> KernelSpec:
    """A product of A and B to C in any order of axes."""
    left, right, out = text.replace("->", ",").split(",")
    arguments = [array(name, list(letters.upper())) for name, letters in (("A", left), ("B", right))]
    arguments.append(array("C", list(out.upper()), "out"))
    fields: dict[str, Any] = {
        "reference": contraction(text),
        "dims": {"M": None, "N": None, "K": None, "G": 3},
        "launch": launch([1], [1]),
    }
    return spec("matmul", arguments, **fields)


def no_host_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Problem, inputs: Any) -> None:
        raise AssertionError("the host computed the reference")

    monkeypatch.setattr(Problem, "reference", fail)


def running(kernel: KernelSpec):
    """A pretended kernel that computes the contraction of `kernel`, rounded to its output's type."""
    problem = problem_of(kernel)
    inputs, (out,) = [a for a in problem.arrays if a.is_input], problem.outputs

    def run(memory, *numbers):
        held = [
            memory.array(at, a.shape, a.dtype.storage) for at, a in zip(numbers, [*inputs, out], strict=False)
        ]
        assert problem.contraction is not None
        wide = evaluate(problem.contraction, [data.astype(np.float64) for data in held[:2]])
        held[2][...] = wide.astype(out.dtype.storage)

    return run


@pytest.mark.parametrize(("name", "output"), CLASSES)
def test_every_class_is_judged_without_the_host(rig: Rig, monkeypatch, name, output):
    no_host_reference(monkeypatch)
    kernel = gemm_spec(dtype=name, output=output)
    rig.prepared(kernel, DIMS)
    check = rig.measure(running(kernel)).check
    assert check.passed
    assert check.checked == DIMS["M"] * DIMS["N"]
    assert rig.failure(lambda *_: None).details["check"].wrong == check.checked


@pytest.mark.parametrize(
    "text", ["mk,kn->mn", "km,kn->mn", "mk,nk->mn", "km,nk->nm", "kn,mk->mn", "nk,km->nm"]
)
def test_axes_may_come_in_any_order(rig: Rig, monkeypatch, text):
    no_host_reference(monkeypatch)
    kernel = other_axes(text)
    assert (
        rig.prepared(kernel, DIMS)
        .measure(running(kernel), launch=Launch((1, 1, 1), (1, 1, 1), 0))
        .check.passed
    )


@pytest.mark.parametrize("text", ["gmk,gkn->gmn", "gkm,gnk->gmn", "gkn,gmk->gmn"])
def test_a_batch_is_computed_matrix_by_matrix(rig: Rig, monkeypatch, text):
    no_host_reference(monkeypatch)
    kernel = other_axes(text)
    one = Launch((1, 1, 1), (1, 1, 1), 0)
    check = rig.prepared(kernel, DIMS).measure(running(kernel), launch=one).check
    assert (check.passed, check.checked) == (True, 3 * DIMS["M"] * DIMS["N"])

    def one_off(memory, *numbers):
        running(kernel)(memory, *numbers)
        memory.array(numbers[2], (3, DIMS["M"], DIMS["N"]), np.float32)[2, 3, 4] += 1

    assert "C[2, 3, 4]" in rig.failure(one_off, launch=one).reason


def test_a_gpu_that_computes_one_matrix_of_a_batch_wrongly_is_not_trusted(rig: Rig):
    rig.driver.product_is_off = 1.0
    with pytest.raises(SetupError, match=r"C\[0, 0, 0\]"):
        rig.prepared(other_axes("gmk,gkn->gmn"), DIMS)


@pytest.mark.parametrize("text", ["mgk,gkn->gmn", "gmk,kn->gmn", "gmk,gkn->mgn"])
def test_a_batch_that_does_not_come_first_is_left_to_the_host(monkeypatch, text):
    monkeypatch.setattr(product_module, "_LEAST_MULTIPLICATIONS", 1)
    assert found(other_axes(text)) is None


@pytest.mark.parametrize(("name", "output"), CLASSES)
def test_the_bounds_are_those_of_the_host(monkeypatch, name, output):
    monkeypatch.setattr(product_module, "_LEAST_MULTIPLICATIONS", 1)
    problem = problem_of(gemm_spec(dtype=name, output=output, tolerance=5.0))
    product = product_of(problem, problem.inputs())
    assert product is not None
    if product.out.dtype.is_integer:
        return
    a, b = (data.astype(np.float64) for data in problem.inputs().values())
    values, magnitudes = device_model.product(a, b.T)
    expected = contraction_bound(
        values,
        magnitudes,
        terms=DIMS["K"],
        operands=2,
        peak=product.peak,
        kernel=problem.spec.dtype,
        output=product.out.dtype,
        tolerance=5.0,
    )
    got = device_model.bound(values, magnitudes, *bound_coefficients(product))
    np.testing.assert_allclose(got, expected, rtol=1e-14)


def test_a_gpu_that_computes_wrongly_is_not_trusted_with_anything(rig: Rig):
    rig.driver.product_is_off = 1e-3
    with pytest.raises(SetupError, match=r"wrongly: C\[0, 0\]") as caught:
        rig.prepared(gemm_spec(), DIMS)
    assert "can be trusted" in str(caught.value)


def test_the_last_bits_of_a_sum_are_no_proof_against_a_gpu(rig: Rig):
    rig.driver.product_is_off = 1e-15
    rig.prepared(gemm_spec(), DIMS)


def test_integers_are_held_against_exact_sums(rig: Rig):
    rig.driver.product_is_off = 1.0
    with pytest.raises(SetupError, match="wrongly"):
        rig.prepared(gemm_spec(dtype="int8", output="int32"), DIMS)


def test_the_sample_has_the_first_row_the_last_and_others(rig: Rig):
    rows = product_module._sampled(4096, seed=1)
    assert (rows[0], rows[-1], len(rows)) == (0, 4095, 16)
    assert len(set(rows)) == 16
    assert list(rows) == sorted(rows)
    assert list(product_module._sampled(3, seed=1)) == [0, 1, 2]
    assert list(rows) == list(product_module._sampled(4096, seed=1))
    assert list(rows) != list(product_module._sampled(4096, seed=2))


@pytest.mark.parametrize(
    "kernel",
    [
        other_axes("mk,k->m"),
        other_axes("mn,mn->mn"),
        other_axes("mk,nk->m"),
        replace(gemm_spec(), reference=contraction("mk,kn->mn"), tolerance=6.0, args=gemm_spec().args[:3]),
    ],
    ids=["matrix by vector", "element by element", "no column", "small"],
)
def test_what_is_no_large_product_is_left_to_the_host(kernel):
    assert found(kernel) is None


def test_a_product_that_might_leave_its_outputs_range_is_left_to_the_host(monkeypatch):
    monkeypatch.setattr(product_module, "_LEAST_MULTIPLICATIONS", 1)
    problem = problem_of(gemm_spec(dtype="float16"))
    inputs = problem.inputs()
    assert product_of(problem, inputs) is not None
    inputs["A"] = inputs["A"].copy()
    inputs["A"][0, 0] = 60_000
    assert product_of(problem, inputs) is None
    inputs["A"][0, 0] = np.nan
    assert product_of(problem, inputs) is None


def test_exact_sums_beyond_what_float64_holds_are_left_to_the_host(monkeypatch):
    monkeypatch.setattr(product_module, "_LEAST_MULTIPLICATIONS", 1)
    problem = problem_of(gemm_spec(dtype="int64"))
    inputs = {name: np.full_like(data, 2**30) for name, data in problem.inputs().items()}
    assert product_of(problem, inputs) is None


def test_without_room_for_its_scratch_the_host_computes_the_reference(rig: Rig, monkeypatch):
    asked = []
    compute = Problem.reference
    monkeypatch.setattr(Problem, "reference", lambda self, inputs: asked.append(1) or compute(self, inputs))
    # The flush buffer takes 16 MiB, the arrays 34 KB, the reference 10 KB, the operands in float64 14 KB.
    rig.install(FakeDriver(total_bytes=(1 << 24) + 60_000))
    kernel = gemm_spec()
    rig.prepared(kernel, DIMS)
    assert asked == [1]
    rig.driver.host_copies.clear()
    assert rig.measure(running(kernel)).check.passed
    assert max(rig.driver.host_copies) < 1000


def test_a_reference_that_the_device_has_no_room_for_stays_on_the_host(rig: Rig):
    rig.install(FakeDriver(total_bytes=(1 << 24) + 36_000))
    kernel = gemm_spec()
    rig.prepared(kernel, DIMS)
    check = rig.measure(running(kernel)).check
    assert (check.passed, check.checked) == (True, 480)
    failure = rig.failure(lambda *_: None)
    assert "480 still hold what was there before the launch" in failure.reason
    assert dtype("float32").bytes * 480 in rig.driver.host_copies
