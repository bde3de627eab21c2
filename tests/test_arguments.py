from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from specs import array, scalar

from sweeper.dtypes import DTYPES, dtype
from sweeper.errors import ConfigError, ExpressionError
from sweeper.problem.arguments import cast, resolve_array, resolve_dims, resolve_scalar

FLOAT32 = dtype("float32")


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("int32", 7, np.int32),
        ("int32", 16.0, np.int32),
        ("int64", 2**63 - 1, np.int64),
        ("uint64", 2**63 - 1, np.uint64),
        ("int8", -128, np.int8),
        ("int32", True, np.int32),
        ("float32", 2, np.float32),
        ("float64", 0.1, np.float64),
        ("float16", 1.5, np.float16),
        ("bfloat16", 1.5, ml_dtypes.bfloat16),
        ("tf32", 1.5, np.float32),
    ],
)
def test_a_scalar_has_exactly_the_declared_type(name, value, kind):
    made = cast("alpha", value, dtype(name))
    assert type(made) is kind
    assert isinstance(made, np.generic)
    assert float(made) == float(value)


def test_a_float_is_rounded_to_its_type():
    assert cast("alpha", 0.1, FLOAT32) == np.float32(0.1)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("int32", 2.5, "alpha = 2.5: not a whole number, but declared int32"),
        ("int8", 300, "alpha = 300: beyond int8, which holds -128 to 127"),
        ("uint32", -1, "beyond uint32"),
        ("int32", 2**31, "beyond int32"),
        ("float16", 1e6, "beyond float16, which ends at 65504"),
        ("float32", 1e39, "beyond float32"),
        ("bfloat16", 1e39, "beyond bfloat16"),
        ("int32", "row", "alpha = 'row': text"),
        ("float32", "row", "alpha = 'row': text"),
    ],
)
def test_a_value_that_the_type_cannot_hold_is_an_error(name, value, said):
    with pytest.raises(ConfigError) as raised:
        cast("alpha", value, dtype(name))
    assert said in str(raised.value)


@pytest.mark.parametrize("precision", DTYPES.values(), ids=lambda d: d.name)
def test_every_class_has_scalars(precision):
    assert np.dtype(type(cast("alpha", 1, precision))) == precision.storage


def test_a_scalar_without_a_class_takes_the_kernels():
    made = resolve_scalar(scalar("alpha", "N / 4", None), dtype("float64"), {"N": 2})
    assert type(made.value) is np.float64
    assert made.value == 0.5


def test_an_array_has_its_shape_class_and_bytes():
    made = resolve_array(array("A", ["M", "K + 1"]), dtype("float16"), {"M": 3, "K": 4})
    assert made.shape == (3, 5)
    assert made.dtype.name == "float16"
    assert (made.size, made.nbytes, made.traffic_bytes) == (15, 30, 30)


def test_an_array_keeps_a_class_of_its_own():
    made = resolve_array(array("C", ["M"], "out", dtype="int32"), dtype("int8"), {"M": 3})
    assert made.dtype.name == "int32"
    assert made.nbytes == 12


@pytest.mark.parametrize(
    ("direction", "is_input", "is_output", "traffic"),
    [("in", True, False, 12), ("out", False, True, 12), ("inout", True, True, 24)],
)
def test_traffic_counts_each_direction_once(direction, is_input, is_output, traffic):
    made = resolve_array(array("y", [3], direction), FLOAT32, {})
    assert (made.is_input, made.is_output, made.traffic_bytes) == (is_input, is_output, traffic)


def test_bytes_are_exact_where_64_bits_would_wrap():
    made = resolve_array(array("A", ["M", "M"]), dtype("float64"), {"M": 2**31})
    assert made.nbytes == 2**65


@pytest.mark.parametrize("size", ["M - 4", "M - 5"])
def test_an_axis_without_elements_is_an_error(size):
    with pytest.raises(ConfigError, match=r"size 1 of A = M - . = -?\d: must be at least 1"):
        resolve_array(array("A", ["M", size]), FLOAT32, {"M": 4})


def test_a_fractional_axis_is_an_error_that_names_the_array():
    with pytest.raises(ExpressionError, match="size 0 of A"):
        resolve_array(array("A", ["M / 3"]), FLOAT32, {"M": 4})


def dims(given, declared=None):
    return resolve_dims(declared or {"M": None, "N": 128}, given, kernel="tiled")


def test_missing_sizes_take_their_defaults_in_the_kernels_order():
    assert list(dims({"M": 4}).items()) == [("M", 4), ("N", 128)]


def test_sizes_become_python_integers():
    assert type(dims({"M": np.int64(4)})["M"]) is int


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"M": 0}, "shape.m = 0: must be at least 1"),
        ({"M": -3}, "shape.m = -3: must be at least 1"),
        ({"M": 4, "N": 0}, "shape.n = 0: must be at least 1"),
        ({"M": 4.0}, "shape.m = 4.0: not a whole number"),
        ({"M": True}, "shape.m = True: not a whole number"),
        ({"M": "4"}, "shape.m = '4': not a whole number"),
        ({}, "shape.m: missing, and kernel tiled has no default"),
        ({"M": 4, "L": 4}, "shape.l: kernel tiled has no size L"),
    ],
)
def test_a_bad_size_is_an_error_that_names_it(given, said):
    with pytest.raises(ConfigError) as raised:
        dims(given)
    assert said in str(raised.value)
