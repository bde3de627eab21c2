from __future__ import annotations

import numpy as np
import pytest
from specs import array, contraction, gemm_spec, spec

from sweeper.dtypes import dtype
from sweeper.errors import ConfigError, KernelError
from sweeper.problem import resolve
from sweeper.problem.arguments import resolve_array
from sweeper.problem.reference import from_function


def problem_of(precision="float32", m=20, n=30, k=40, **changes):
    return resolve(gemm_spec(dtype=precision, **changes), {"M": m, "N": n, "K": k}, None, seed=3)


def reference_of(problem, inputs=None):
    return problem.reference(inputs or problem.inputs())["C"]


@pytest.mark.parametrize("precision", ["float64", "float32", "tf32", "float16", "bfloat16"])
def test_values_are_the_float64_product_of_the_rounded_inputs(precision):
    problem = problem_of(precision)
    inputs = problem.inputs()
    reference = reference_of(problem, inputs)
    expected = inputs["A"].astype(np.float64) @ inputs["B"].astype(np.float64)
    assert reference.values.dtype == reference.bound.dtype == np.float64
    np.testing.assert_allclose(reference.values, expected, rtol=0, atol=1e-13)
    assert np.all(reference.bound > 0)


def test_integers_are_exact():
    problem = problem_of("int8", k=5000, output="int32")
    inputs = problem.inputs()
    reference = reference_of(problem, inputs)
    assert reference.values.dtype == np.int64
    assert np.array_equal(reference.values, inputs["A"].astype(np.int64) @ inputs["B"].astype(np.int64))
    assert not reference.bound.any()


def test_the_lowest_int8_counts_with_its_magnitude():
    problem = problem_of("int8", m=1, n=1, k=1, output="int32")
    low = np.full((1, 1), -128, np.int8)
    assert reference_of(problem, {"A": low, "B": low}).values == 128 * 128


def integer_matrices(value):
    problem = problem_of("int64", m=2, n=2, k=3)
    filled = {"A": np.full((2, 3), value, np.int64), "B": np.full((3, 2), 3, np.int64)}
    return problem, filled


def test_sums_beyond_2_53_stay_exact():
    problem, inputs = integer_matrices(2**55 + 1)
    assert np.all(reference_of(problem, inputs).values == 9 * (2**55 + 1))


def test_sums_beyond_64_bits_are_an_input_range_error():
    problem, inputs = integer_matrices(2**61)
    with pytest.raises(ConfigError, match="input range: sums of C may reach"):
        problem.reference(inputs)


def test_a_sum_beyond_an_integer_output_is_an_input_range_error():
    problem = problem_of("int8", m=2, n=2, k=200)
    inputs = {"A": np.ones((2, 200), np.int8), "B": np.ones((200, 2), np.int8)}
    with pytest.raises(ConfigError, match=r"input range: C\[0, 0\] should be 200, beyond int8"):
        problem.reference(inputs)


def test_a_half_precision_sum_beyond_65504_is_an_input_range_error():
    problem = problem_of("float16", m=4, n=4, k=8192)
    rng = np.random.default_rng(0)
    inputs = {
        "A": rng.uniform(0, 8, (4, 8192)).astype(np.float16),
        "B": rng.uniform(0, 8, (8192, 4)).astype(np.float16),
    }
    with pytest.raises(ConfigError, match="input range") as raised:
        problem.reference(inputs)
    assert "float16" in str(raised.value)
    assert raised.value.hint


@pytest.mark.parametrize("precision", ["float16", "bfloat16", "int8"])
@pytest.mark.parametrize("fill", ["uniform", "normal", "integers"])
def test_generated_inputs_never_exceed_their_output(precision, fill):
    output = "int32" if precision == "int8" else None
    problem = problem_of(precision, m=3, n=3, k=200_000, fill=fill, output=output)
    assert np.abs(reference_of(problem).values).max() > 0


def blocks_mask(shape, blocks, edge):
    mask = np.zeros(shape, bool)
    for row, column in blocks:
        mask[row : row + edge, column : column + edge] = True
    return mask


@pytest.mark.parametrize(
    ("precision", "output"), [("float32", None), ("float16", None), ("tf32", None), ("int8", "int32")]
)
def test_a_part_of_the_reference_is_that_part_of_the_whole(precision, output):
    problem = problem_of(precision, m=100, n=90, output=output)
    inputs = problem.inputs()
    mask = blocks_mask((100, 90), [(0, 0), (16, 64), (96, 80), (32, 0)], 16)
    whole, part = reference_of(problem, inputs), problem.reference_where(inputs, {"C": mask})["C"]
    assert np.array_equal(part.where, np.flatnonzero(mask))
    assert part.values.dtype == whole.values.dtype
    np.testing.assert_allclose(part.values, whole.values[mask], rtol=0, atol=1e-12)
    np.testing.assert_allclose(part.bound, whole.bound[mask], rtol=0.3)


def test_scattered_elements_are_found_without_their_neighbours():
    problem = problem_of(m=200, n=90)
    inputs = problem.inputs()
    mask = np.random.default_rng(0).random((200, 90)) < 0.05
    part = problem.reference_where(inputs, {"C": mask})["C"]
    assert np.array_equal(part.where, np.flatnonzero(mask))
    np.testing.assert_allclose(part.values, reference_of(problem, inputs).values[mask], atol=1e-12)


def test_a_full_mask_gives_the_whole_reference():
    problem = problem_of()
    inputs = problem.inputs()
    part = problem.reference_where(inputs, {"C": np.ones((20, 30), bool)})["C"]
    assert part.where is None
    assert np.array_equal(part.values, reference_of(problem, inputs).values)


def test_a_mask_of_another_shape_is_an_error():
    problem = problem_of()
    with pytest.raises(KernelError, match=r"mask of C \(float32 20×30\): its shape is \(30, 20\)"):
        problem.reference_where(problem.inputs(), {"C": np.ones((30, 20), bool)})


@pytest.mark.parametrize("precision", ["float32", "int32"])
def test_an_empty_mask_gives_an_empty_reference(precision):
    problem = problem_of(precision)
    part = problem.reference_where(problem.inputs(), {"C": np.zeros((20, 30), bool)})["C"]
    assert part.values.size == part.bound.size == part.where.size == 0


@pytest.mark.parametrize(
    ("text", "shapes", "output"),
    [
        ("bmk,bkn->bmn", (["B", "M", "K"], ["B", "K", "N"]), ["B", "M", "N"]),
        ("mk,k->m", (["M", "K"], ["K"]), ["M"]),
        ("n,n->n", (["N"], ["N"]), ["N"]),
        ("k,k->", (["K"], ["K"]), [1]),
        ("k,k->", (["K"], ["K"]), [1, 1]),
        ("mn->nm", (["M", "N"],), ["N", "M"]),
    ],
)
def test_any_contraction_can_be_computed_in_part(text, shapes, output):
    args = [array(f"x{i}", shape) for i, shape in enumerate(shapes)]
    described = spec(
        "c", [*args, array("y", output, "out")], reference=contraction(text), dims=["B", "M", "N", "K"]
    )
    problem = resolve(described, {"B": 3, "M": 6, "N": 5, "K": 8}, None, seed=1)
    inputs = problem.inputs()
    whole = problem.reference(inputs)["y"]
    assert whole.values.shape == whole.bound.shape == problem.outputs[0].shape
    mask = np.random.default_rng(0).random(whole.values.shape) < 0.5
    part = problem.reference_where(inputs, {"y": mask})["y"]
    values = part.values if part.where is not None else part.values[mask]
    np.testing.assert_allclose(values, whole.values[mask], atol=1e-12)


def gemm_args(c_direction="out", c_dtype=None, a_dtype=None, extra=()):
    return [
        array("A", ["M", "K"], dtype=a_dtype),
        array("B", ["K", "N"]),
        array("C", ["M", "N"], c_direction, dtype=c_dtype),
        *extra,
    ]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (gemm_args("inout"), "exactly one array of direction out, but there is C (inout)"),
        (gemm_args(extra=[array("D", ["M", "N"], "out")]), "but there is C (out), D (out)"),
        (gemm_args(c_dtype="int32"), "A, B of floating point, but C (int32 4×5) of integers"),
        (
            gemm_args(extra=[array("bias", ["N"])]),
            "2 operands, but the kernel has 3 input arrays (A, B, bias)",
        ),
    ],
)
def test_arrays_that_a_contraction_cannot_describe_are_an_error(args, said):
    described = spec("gemm", args, reference=contraction("mk,kn->mn"), dims="MNK")
    with pytest.raises(KernelError) as raised:
        resolve(described, {"M": 4, "N": 5, "K": 6}, None, seed=0)
    assert said in str(raised.value)
    assert "kernel gemm: contraction 'mk,kn->mn'" in str(raised.value)


def test_integer_operands_may_give_a_floating_point_output():
    problem = problem_of("int8", output="float32", k=100)
    inputs = problem.inputs()
    right = inputs["A"].astype(np.float32) @ inputs["B"].astype(np.float32)
    assert problem.check({"C": right}, problem.reference(inputs)).passed


def output(precision):
    return resolve_array(array("y", [3], "out"), dtype(precision), {})


def from_values(values, precision="float32"):
    return from_function(
        output(precision), np.asarray(values), None, terms=1, kernel=dtype(precision), tolerance=6.0
    )


def test_a_function_with_integer_outputs_is_exact():
    reference = from_values([1.0, 2.0, -3.0], "int32")
    assert reference.values.dtype == np.int64
    assert not reference.bound.any()


def test_a_function_that_gives_a_fraction_to_an_integer_output_is_an_error():
    with pytest.raises(KernelError, match=r"y .* is of integers, but a fraction"):
        from_values([1.0, 2.5, 3.0], "int32")


@pytest.mark.parametrize(
    ("bad", "said"), [(np.nan, "not a number"), (np.inf, "beyond float32"), (1e39, "beyond")]
)
def test_a_function_without_a_representable_result_is_an_input_range_error(bad, said):
    with pytest.raises(ConfigError, match="input range") as raised:
        from_values([1.0, bad, 3.0])
    assert said in str(raised.value)
