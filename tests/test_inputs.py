from __future__ import annotations

import numpy as np
import pytest
from specs import array

from sweeper.dtypes import DTYPES, dtype
from sweeper.errors import KernelError
from sweeper.problem import inputs
from sweeper.problem.arguments import resolve_array
from sweeper.problem.inputs import FILLS, amplitude, generate, stream

FLOATS = ["float64", "float32", "tf32", "float16", "bfloat16"]


def made(name="A", precision="float32", shape=(64, 48), fill="uniform", amplitude=1.0):
    resolved = resolve_array(array(name, shape, fill=fill), dtype(precision), {})
    return type(resolved)(resolved.name, resolved.dtype, resolved.shape, resolved.direction, fill, amplitude)


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("precision", DTYPES)
def test_every_fill_of_every_class_is_contiguous_and_of_its_type(precision, fill):
    data = generate(made(precision=precision, fill=fill), seed=1)
    assert data.dtype == dtype(precision).storage
    assert data.shape == (64, 48)
    assert data.flags.c_contiguous
    assert np.isfinite(data.astype(np.float64)).all()


@pytest.mark.parametrize("fill", ["uniform", "normal", "integers"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_one_seed_gives_the_same_bytes_and_another_does_not(precision, fill):
    array = made(precision=precision, fill=fill, amplitude=8.0)
    assert generate(array, seed=1).tobytes() == generate(array, seed=1).tobytes()
    assert generate(array, seed=1).tobytes() != generate(array, seed=2).tobytes()


def test_arrays_of_one_shape_hold_different_data():
    assert not np.array_equal(generate(made("A"), seed=1), generate(made("B"), seed=1))


def test_a_square_matrix_is_not_symmetric():
    data = generate(made(shape=(64, 64)), seed=1)
    assert not np.allclose(data, data.T)


def test_any_integer_is_a_seed():
    assert stream(-(2**70), "A").random() != stream(2**70, "A").random()


@pytest.mark.parametrize("precision", FLOATS)
def test_uniform_fills_the_interval_evenly(precision):
    data = generate(made(precision=precision, shape=(512, 512)), seed=3).astype(np.float64)
    assert data.min() >= -1
    assert data.max() <= 1
    assert abs(data.mean()) < 0.01
    assert data.std() == pytest.approx(1 / np.sqrt(3), rel=0.01)


@pytest.mark.parametrize("precision", FLOATS)
def test_normal_has_the_amplitude_as_standard_deviation(precision):
    array = made(precision=precision, shape=(512, 512), fill="normal", amplitude=0.25)
    data = generate(array, seed=3).astype(np.float64)
    assert abs(data.mean()) < 0.01
    assert data.std() == pytest.approx(0.25, rel=0.01)


@pytest.mark.parametrize("precision", FLOATS)
def test_integers_are_whole_small_and_of_both_signs(precision):
    data = generate(made(precision=precision, fill="integers", amplitude=8.0), seed=3).astype(np.float64)
    assert set(np.unique(data)) == set(range(-8, 9))


def test_float32_data_uses_its_whole_significand():
    data = generate(made(shape=(4096,)), seed=3)
    assert not np.array_equal(data.astype(np.float16).astype(np.float32), data)
    assert np.any(data.view(np.uint32) & 0x1FFF), "as wide as tf32 only"


def test_integer_arrays_reach_their_amplitude_on_both_sides():
    data = generate(made(precision="int8", shape=(10_000,), amplitude=100.0), seed=3)
    assert (data.min(), data.max()) == (-100, 100)


def test_unsigned_arrays_hold_nothing_negative():
    data = generate(made(precision="uint32", shape=(10_000,), amplitude=100.0), seed=3)
    assert (data.min(), data.max()) == (0, 100)


def test_zeros_and_ones_do_not_heed_the_amplitude():
    assert not generate(made(fill="zeros", amplitude=0.5), seed=3).any()
    assert (generate(made(fill="ones", amplitude=0.5), seed=3) == 1).all()


def test_an_unknown_fill_is_an_error():
    with pytest.raises(KernelError, match="fill 'noise' is none of uniform"):
        generate(made(fill="noise"), seed=3)


def scale(precision, fill="uniform", *, terms, output=None, operands=2):
    return amplitude(
        dtype(precision), fill, terms=terms, operands=operands, output=dtype(output or precision)
    )


def test_data_is_not_scaled_where_no_sum_can_overflow():
    assert scale("float32", terms=10**6) == 1
    assert scale("float16", terms=8192) == 1


@pytest.mark.parametrize("terms", [40_000, 10**5, 10**6, 10**9])
@pytest.mark.parametrize("operands", [1, 2, 3])
def test_scaled_data_cannot_overflow_its_output(terms, operands):
    a = scale("float16", terms=terms, operands=operands)
    assert terms * a**operands <= 65504 / 2
    assert np.log2(a).is_integer()


def test_normal_data_is_scaled_for_its_tails():
    assert terms_of_8_sigma(scale("float16", "normal", terms=4096)) <= 65504


def terms_of_8_sigma(a):
    return 4096 * (8 * a) ** 2


@pytest.mark.parametrize(
    ("precision", "fill", "terms", "output", "expected"),
    [
        ("int8", "uniform", 4096, "int32", 127),
        ("int8", "uniform", 2**20, "int32", 45),
        ("int8", "uniform", 64, "int8", 1),
        ("float16", "integers", 64, "float16", 8),
        ("float16", "integers", 4096, "float16", 2),
        ("float32", "integers", 4096, "float32", 8),
    ],
)
def test_integers_are_as_large_as_their_sums_allow(precision, fill, terms, output, expected):
    assert scale(precision, fill, terms=terms, output=output) == expected


@pytest.mark.parametrize("precision", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("shape", [(1500, 1501), (7, 200_003)])
def test_data_do_not_depend_on_how_many_processors_draw_them(monkeypatch, precision, shape):
    array = made(precision=precision, shape=shape)
    monkeypatch.setattr(inputs.os, "cpu_count", lambda: 1)
    alone = generate(array, seed=5)
    monkeypatch.setattr(inputs.os, "cpu_count", lambda: 3)
    assert generate(array, seed=5).tobytes() == alone.tobytes()
