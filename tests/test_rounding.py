"""The bounds, against kernels simulated step by step in the precision of their accumulator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from specs import gemm_spec

from sweeper.dtypes import dtype
from sweeper.errors import ConfigError
from sweeper.problem import resolve
from sweeper.problem.rounding import function_bound, largest, require_in_range


def problem_of(precision, m, n, k, **changes):
    return resolve(gemm_spec(dtype=precision, **changes), {"M": m, "N": n, "K": k}, None, seed=11)


def sequential(a, b, accumulator=np.float32):
    """C = A·B as one thread an element computes it: one product after the other, rounded each time."""
    c = np.zeros((a.shape[0], b.shape[1]), accumulator)
    for k in range(a.shape[1]):
        c += a[:, k, None].astype(accumulator) * b[k, None, :].astype(accumulator)
    return c


def truncated_to_11_bits(x):
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def rounded_to_11_bits(x):
    bits = x.view(np.uint32)
    even = (bits >> np.uint32(13)) & np.uint32(1)
    return ((bits + np.uint32(0xFFF) + even) & np.uint32(0xFFFFE000)).view(np.float32)


def truncating(a, b, step=8):
    """C = A·B as a tensor core sums it: exact products of a step added to C, the sum cut to 24 bits."""
    c = np.zeros((a.shape[0], b.shape[1]))
    for k in range(0, a.shape[1], step):
        c += a[:, k : k + step].astype(np.float64) @ b[k : k + step].astype(np.float64)
        c = (c.view(np.uint64) & np.uint64(2**64 - 2**29)).view(np.float64)
    return c


def checked(problem, compute, inputs=None):
    inputs = inputs or problem.inputs()
    output = problem.outputs[0].dtype.storage
    return problem.check({"C": compute(inputs["A"], inputs["B"]).astype(output)}, problem.reference(inputs))


@pytest.mark.parametrize("k", [64, 1024, 8192, 65536])
def test_a_right_sequential_float32_sum_passes(k):
    assert checked(problem_of("float32", 6, 7, k), sequential).passed


@pytest.mark.parametrize("k", [64, 1024, 8192, 65536])
def test_one_wrong_element_fails_at_its_place(k):
    def one_wrong(a, b):
        c = sequential(a, b)
        c[2, 3] = c[3, 2]
        return c

    check = checked(problem_of("float32", 6, 7, k), one_wrong)
    assert not check.passed
    assert check.wrong == 1
    assert check.error_index == (2, 3)


@pytest.mark.parametrize("k", [64, 1024, 8192, 65536])
def test_dropping_the_last_term_of_every_sum_fails(k):
    problem = problem_of("float32", 16, 16, k)
    assert not checked(problem, lambda a, b: sequential(a[:, :-1], b[:-1])).passed


@pytest.mark.parametrize("k", [1024, 8192])
def test_positive_data_whose_errors_are_largest_passes(k):
    problem = problem_of("float32", 6, 7, k)
    positive = {name: np.abs(data) for name, data in problem.inputs().items()}
    assert checked(problem, sequential, positive).passed


def test_an_element_near_zero_is_not_judged_by_its_relative_error():
    problem = problem_of("float32", 4, 4, 1024)
    inputs = problem.inputs()
    inputs["A"][:, 512:] = -inputs["A"][:, :512]
    inputs["B"][512:, :] = inputs["B"][:512, :]
    c = sequential(inputs["A"][:, ::-1], inputs["B"][::-1])
    reference = problem.reference(inputs)
    assert np.abs(reference["C"].values).max() < 1e-12
    assert np.abs(c).max() > 1e-7
    assert problem.check({"C": c}, reference).passed


def test_float64_is_held_to_its_own_bound():
    problem = problem_of("float64", 8, 8, 2048)
    assert checked(problem, lambda a, b: sequential(a, b, np.float64)).passed
    check = checked(problem, sequential)
    assert not check.passed
    assert check.error_ratio > 100


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("k", [16, 1024, 8192])
def test_16_bit_products_summed_in_float32_and_rounded_once_pass(precision, k):
    assert checked(problem_of(precision, 6, 7, k), sequential).passed


@pytest.mark.parametrize(("precision", "bits"), [("float16", 11), ("bfloat16", 8)])
def test_16_bit_outputs_two_roundings_off_fail(precision, bits):
    problem = problem_of(precision, 16, 16, 64)

    def off(a, b):
        return sequential(a, b) * (1 + 2.0 ** (2 - bits))

    assert not checked(problem, off).passed


def test_a_float32_output_of_16_bit_inputs_is_held_to_float32():
    problem = problem_of("float16", 6, 7, 256, output="float32")
    assert checked(problem, sequential).passed
    assert not checked(problem, lambda a, b: sequential(a, b).astype(np.float16)).passed


def test_subnormal_results_pass_by_their_spacing():
    problem = problem_of("float16", 6, 7, 64)
    inputs = {
        name: (data * np.float16(2.0**-12)).astype(np.float16) for name, data in problem.inputs().items()
    }
    reference = problem.reference(inputs)
    assert 0 < np.abs(reference["C"].values).max() < 2.0**-14
    assert checked(problem, sequential, inputs).passed


def test_products_flushed_to_zero_by_the_accumulator_pass():
    problem = problem_of("float32", 4, 4, 16)
    inputs = {name: data * np.float32(1e-22) for name, data in problem.inputs().items()}
    assert checked(problem, lambda a, b: np.zeros((4, 4), np.float32), inputs).passed


@pytest.mark.parametrize("to_tf32", [truncated_to_11_bits, rounded_to_11_bits])
@pytest.mark.parametrize("k", [8, 64, 1024, 8192])
def test_tf32_operands_rounded_or_truncated_pass(to_tf32, k):
    problem = problem_of("tf32", 16, 16, k)
    assert checked(problem, lambda a, b: sequential(to_tf32(a), to_tf32(b))).passed


@pytest.mark.parametrize(
    ("precision", "output"),
    [("float16", "float32"), ("bfloat16", "float32"), ("tf32", "tf32")],
)
@pytest.mark.parametrize("k", [64, 1024, 8192, 65536])
def test_an_accumulator_that_truncates_as_tensor_cores_do_passes(precision, output, k):
    problem = problem_of(precision, 24, 24, k, output=output)
    cut = truncated_to_11_bits if precision == "tf32" else np.asarray
    check = checked(problem, lambda a, b: truncating(cut(a), cut(b)))
    assert check.passed
    assert check.error_ratio < 0.7


@pytest.mark.parametrize("k", [64, 1024, 8192, 65536])
def test_operands_of_two_parts_of_11_bits_pass_as_three_products_of_tf32(k):
    def three(a, b):
        high_a, high_b = rounded_to_11_bits(a), rounded_to_11_bits(b)
        low_a, low_b = truncated_to_11_bits(a - high_a), truncated_to_11_bits(b - high_b)
        return sequential(high_a, high_b) + (sequential(high_a, low_b) + sequential(low_a, high_b))

    check = checked(problem_of("tf32x3", 16, 16, k), three)
    assert check.passed
    assert check.error_ratio < 0.5


@pytest.mark.parametrize(("k", "passes"), [(8192, True), (65536, False)])
def test_sums_that_stay_in_tensor_cores_drift_out_of_the_bound_of_three_products(k, passes):
    assert checked(problem_of("tf32x3", 16, 16, k), truncating).passed is passes


@pytest.mark.parametrize("precision", ["float32", "tf32x3"])
@pytest.mark.parametrize("k", [64, 1024, 8192])
def test_tf32_results_are_not_float32_results(precision, k):
    problem = problem_of(precision, 16, 16, k)
    assert not checked(
        problem, lambda a, b: sequential(truncated_to_11_bits(a), truncated_to_11_bits(b))
    ).passed


@pytest.mark.parametrize("k", [64, 1024, 8192])
def test_tf32_that_drops_a_tile_of_terms_fails(k):
    problem = problem_of("tf32", 16, 16, k)

    def short(a, b):
        return sequential(rounded_to_11_bits(a[:, :-8]), rounded_to_11_bits(b[:-8]))

    assert not checked(problem, short).passed


def test_a_larger_tolerance_widens_the_bound_in_proportion():
    strict, loose = (
        p.reference(p.inputs())["C"].bound
        for p in (problem_of("float32", 4, 4, 64, tolerance=c) for c in (6.0, 12.0))
    )
    assert np.all(loose > 1.8 * strict)
    assert np.all(loose < 2 * strict)


def test_the_bound_grows_with_the_square_root_of_the_terms_for_equal_magnitudes():
    bounds = []
    for k in (64, 64 * 16):
        problem = problem_of("float32", 2, 2, k)
        inputs = {"A": np.full((2, k), 1 / k, np.float32), "B": np.ones((k, 2), np.float32)}
        bounds.append(problem.reference(inputs)["C"].bound.mean())
    assert bounds[1] / bounds[0] == pytest.approx(4, rel=0.05)


def test_magnitudes_too_large_for_float32_still_give_a_finite_bound():
    problem = problem_of("float32", 2, 2, 2)
    inputs = {"A": np.full((2, 2), 3e19, np.float32), "B": np.full((2, 2), 3e18, np.float32)}
    bound = problem.reference(inputs)["C"].bound
    assert np.isfinite(bound).all()
    assert np.all(bound < 1e-5 * 1.8e38)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("float16", 65504.0),
        ("int8", 127.0),
        ("uint32", 2.0**32 - 1),
        ("float32", float(np.finfo(np.float32).max)),
    ],
)
def test_the_largest_value_of_a_class(name, value):
    assert largest(dtype(name)) == value


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("float16", [0.0, 65520.0]),
        ("float16", [0.0, -1e6]),
        ("float32", [0.0, np.inf]),
        ("bfloat16", [0.0, 1e39]),
        ("int8", [0, 128]),
        ("int32", [0, -(2**31) - 1]),
        ("uint32", [0, -1]),
    ],
)
def test_a_reference_beyond_the_output_type_is_an_input_range_error(name, values):
    with pytest.raises(ConfigError, match=r"input range: C\[0, 1\] should be .*, beyond " + name):
        require_in_range("C", np.array([values]), dtype(name))


def test_a_reference_that_is_not_a_number_is_an_input_range_error():
    with pytest.raises(ConfigError, match=r"input range: .* C\[1\] is not a number"):
        require_in_range("C", np.array([1.0, np.nan]), dtype("float32"))


def test_values_at_the_limits_are_in_range():
    require_in_range("C", np.array([-65504.0, 65504.0]), dtype("float16"))
    require_in_range("C", np.array([-128, 127]), dtype("int8"))


def bound_of(values, magnitudes=None, *, kernel="float32", output="float32", terms=1, sides=1):
    return function_bound(
        np.asarray(values, float),
        None if magnitudes is None else np.asarray(magnitudes, float),
        terms=terms,
        kernel=dtype(kernel),
        output=dtype(output),
        tolerance=6.0,
        sides=sides,
    )


def test_a_function_is_judged_near_zero_by_the_size_of_its_other_results():
    bound = bound_of([0.0, 1.0, -1.0])
    assert bound[0] > 6 * 2.0**-24 * 0.5
    assert np.all(bound < 40 * 2.0**-24)


def test_a_function_that_cancels_is_judged_by_what_it_sums():
    assert np.all(bound_of([1.0, 1.0], [1000.0, 1.0])[0] > 300 * bound_of([1.0, 1.0])[1])


def test_a_function_of_integer_operands_is_judged_by_its_output():
    assert bound_of([1.0], kernel="int8")[0] == pytest.approx(bound_of([1.0])[0])


def test_a_reference_of_the_same_precision_doubles_the_bound():
    assert bound_of([1.0, 2.0], sides=2) == pytest.approx(2 * bound_of([1.0, 2.0]))


def test_half_precision_functions_may_round_every_step():
    x, y = (np.random.default_rng(5).uniform(-1, 1, (2, 4096))).astype(np.float16)
    exact = 2.5 * x.astype(float) + y.astype(float)
    twice_rounded = (np.float16(2.5) * x + y).astype(float)
    magnitudes = np.abs(2.5 * x.astype(float)) + np.abs(y.astype(float))
    assert np.all(
        np.abs(twice_rounded - exact) <= bound_of(exact, magnitudes, kernel="float16", output="float16")
    )


def test_bfloat16_has_limits_too():
    assert largest(dtype("bfloat16")) == float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
