from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from specs import array

from sweeper.dtypes import DTYPES, dtype
from sweeper.errors import KernelError
from sweeper.problem.arguments import resolve_array
from sweeper.problem.reference import ReferenceValues
from sweeper.problem.verify import check, is_poison, poison

SHAPE = (64, 64)


def output(name="C", precision="float32", shape=SHAPE):
    return resolve_array(array(name, shape, "out"), dtype(precision), {})


def exactly(values, bound=1e-5):
    return {"C": ReferenceValues(values.astype(np.float64), np.full(values.shape, bound))}


def data(precision="float32", shape=SHAPE):
    values = np.random.default_rng(1).uniform(-1, 1, shape)
    return values.astype(dtype(precision).storage)


def compared(got, reference=None, written=None, precision="float32"):
    outputs = [output(precision=precision, shape=got.shape)]
    return check(outputs, {"C": got}, reference or exactly(data(precision, got.shape)), written)


def test_equal_arrays_pass():
    result = compared(data())
    assert result.passed
    assert (result.checked, result.wrong, result.max_error, result.error_ratio) == (4096, 0, 0.0, 0.0)
    assert result.error_index is None
    assert result.mismatches == ()
    assert result.note == ""


def test_an_error_within_its_bound_passes_and_is_told():
    got = data()
    got[3, 5] += 5e-6
    result = compared(got)
    assert result.passed
    assert result.error_ratio == pytest.approx(0.5, rel=0.05)
    assert result.max_error == pytest.approx(5e-6, rel=0.05)
    assert result.error_index == (3, 5)


def test_one_wrong_element_fails_with_its_place_values_and_bound():
    got = data()
    got[60, 7] += 1
    result = compared(got)
    assert not result.passed
    assert result.wrong == 1
    assert result.error_index == (60, 7)
    (mismatch,) = result.mismatches
    assert (mismatch.array, mismatch.index, mismatch.bound) == ("C", (60, 7), 1e-5)
    assert mismatch.got == pytest.approx(mismatch.want + 1)
    assert result.note == "1 of 4096 elements are wrong"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [(0, 0), (17, 3), (63, 63)])
def test_one_element_that_is_not_finite_fails(bad, place):
    got = data()
    got[place] = bad
    result = compared(got)
    assert not result.passed
    assert result.wrong == 1
    assert result.error_index == place
    assert result.error_ratio == result.max_error == math.inf
    assert "1 of them not finite" in result.note


def test_an_infinity_fails_even_where_the_reference_has_one():
    got = data()
    got[2, 2] = math.inf
    reference = exactly(got)
    assert not compared(got, reference).passed
    reference["C"].bound[2, 2] = math.inf
    assert not compared(got, reference).passed


def test_a_number_where_the_reference_has_none_fails():
    want = data()
    want[2, 2] = math.nan
    assert not compared(data(), exactly(want)).passed


def test_an_output_of_nan_only_fails_everywhere():
    result = compared(np.full(SHAPE, np.nan, np.float32))
    assert (result.passed, result.wrong) == (False, 4096)


@pytest.mark.parametrize("precision", ["float16", "bfloat16", "float32", "float64"])
def test_nan_fails_in_every_class(precision):
    got = data(precision)
    assert compared(got, precision=precision).passed
    got[1, 1] = math.nan
    assert not compared(got, precision=precision).passed


def test_the_first_five_mismatches_come_in_array_order():
    got = data(shape=(300, 400))
    places = [(0, 9), (0, 10), (5, 0), (170, 3), (250, 399), (299, 0), (299, 399)]
    for place in places:
        got[place] += 1
    result = compared(got)
    assert result.wrong == 7
    assert [m.index for m in result.mismatches] == places[:5]


def test_the_largest_error_is_found_in_a_later_chunk():
    got = data(shape=(300, 400))
    got[0, 0] += 1
    got[299, 1] += 2
    result = compared(got)
    assert result.error_index == (299, 1)
    assert result.max_error == pytest.approx(2, rel=1e-5)


def test_integers_must_be_equal():
    want = np.arange(64).reshape(8, 8)
    got = want.astype(np.int32)
    reference = {"C": ReferenceValues(want.astype(np.int64), np.broadcast_to(np.float64(0), (8, 8)))}
    assert compared(got, reference, precision="int32").passed
    got[1, 2] += 1
    result = compared(got, reference, precision="int32")
    assert not result.passed
    assert result.error_index == (1, 2)
    assert (result.mismatches[0].got, result.mismatches[0].want, result.mismatches[0].bound) == (11, 10, 0)


def test_integers_that_float64_cannot_tell_apart_are_told_apart():
    want = np.full((2, 2), 2**62 + 1, np.int64)
    reference = {"C": ReferenceValues(want, np.zeros((2, 2)))}
    assert compared(want.copy(), reference, precision="int64").passed
    assert not compared(want - 1, reference, precision="int64").passed


def part_of(values, mask):
    where = np.flatnonzero(mask)
    return {
        "C": ReferenceValues(values.reshape(-1)[where].astype(np.float64), np.full(where.size, 1e-5), where)
    }


@pytest.fixture
def half_written():
    """An output of which only two tiles were written, and the mask of them."""
    mask = np.zeros(SHAPE, bool)
    mask[:16, 16:32] = mask[48:, 48:] = True
    return np.where(mask, data(), np.float32(np.nan)), mask


@pytest.mark.parametrize("whole", [True, False], ids=["whole reference", "part of it"])
def test_only_written_elements_count(half_written, whole):
    got, mask = half_written
    reference = exactly(data()) if whole else part_of(data(), mask)
    result = compared(got, reference, {"C": mask})
    assert result.passed
    assert result.checked == 512
    got[50, 51] += 1
    result = compared(got, reference, {"C": mask})
    assert not result.passed
    assert result.error_index == result.mismatches[0].index == (50, 51)


def test_a_reference_of_a_part_needs_no_mask(half_written):
    got, mask = half_written
    assert compared(got, part_of(data(), mask)).passed


def test_a_mask_of_nothing_fails():
    result = compared(data(), None, {"C": np.zeros(SHAPE, bool)})
    assert not result.passed
    assert (result.checked, result.wrong) == (0, 0)
    assert result.note == "no element of C was written"


def test_an_output_without_a_mask_counts_whole():
    assert compared(data(), None, {}).checked == 4096


def test_a_mask_of_another_shape_is_an_error():
    with pytest.raises(KernelError, match=r"mask of C \(float32 64×64\): its shape is \(4,\)"):
        compared(data(), None, {"C": np.ones(4, bool)})


def test_a_mask_of_other_elements_than_the_reference_is_an_error(half_written):
    got, mask = half_written
    with pytest.raises(KernelError, match="4096 elements, but the reference was computed for 512"):
        compared(got, part_of(data(), mask), {"C": np.ones(SHAPE, bool)})


def test_every_output_is_compared():
    outputs = [output(), output("D")]
    reference = exactly(data()) | {"D": exactly(data())["C"]}
    wrong = data()
    wrong[4, 4] += 1
    result = check(outputs, {"C": data(), "D": wrong}, reference)
    assert (result.passed, result.checked, result.wrong) == (False, 8192, 1)
    assert result.mismatches[0].array == "D"


def test_an_output_that_was_not_fetched_is_an_error():
    with pytest.raises(KernelError, match=r"output C \(float32 64×64\) was not fetched"):
        check([output()], {}, exactly(data()))


@pytest.mark.parametrize("got", [data("float64"), data().reshape(-1), data()[:32], data().view(np.int32)])
def test_an_output_of_another_size_shape_or_type_is_an_error(got):
    with pytest.raises(KernelError, match=r"came back as .* but 16384 bytes are declared"):
        check([output()], {"C": got}, exactly(data()))


def test_a_fortran_ordered_output_is_compared_by_its_elements():
    assert compared(np.asfortranarray(data())).passed


@pytest.mark.parametrize("precision", DTYPES.values(), ids=lambda d: d.name)
def test_poison_is_recognised_bit_for_bit(precision):
    array = output(precision=precision.name)
    content = poison(array)
    assert content.dtype == precision.storage
    assert content.shape == SHAPE
    assert is_poison(content).all()
    content[5, 6] = 1
    expected = np.ones(SHAPE, bool)
    expected[5, 6] = False
    assert np.array_equal(is_poison(content), expected)


@pytest.mark.parametrize("name", ["float64", "float32", "tf32", "float16", "bfloat16"])
def test_poison_of_a_floating_point_class_is_a_quiet_nan_unlike_any_computed_one(name):
    content = poison(output(precision=name))
    assert np.isnan(content.astype(np.float64)).all()
    kind = content.dtype
    bits = np.dtype(f"u{kind.itemsize}")
    mantissa = ml_dtypes.finfo(kind).nmant
    assert (content.view(bits) >> bits.type(mantissa - 1) & bits.type(1)).all(), "signalling"
    one_bits = np.array([2 ** (8 * kind.itemsize - 1) - 1], bits).view(kind)
    with np.errstate(all="ignore"):
        zero = np.zeros(1, kind)
        computed = [zero / zero, -(zero / zero), np.full(1, np.nan, kind), one_bits]
    assert not any(is_poison(np.asarray(value, kind)).any() for value in computed)


def test_elements_that_nobody_wrote_are_counted_in_the_note():
    got = poison(output())
    got[:32] = data()[:32]
    result = compared(got)
    assert not result.passed
    assert result.wrong == 2048
    assert "2048 still hold what was there before the launch" in result.note


def test_integers_that_nobody_wrote_fail_too():
    want = np.arange(64).reshape(8, 8)
    reference = {"C": ReferenceValues(want.astype(np.int64), np.zeros((8, 8)))}
    result = compared(poison(output(precision="int32", shape=(8, 8))), reference, precision="int32")
    assert result.wrong == 64
    assert "64 still hold" in result.note
