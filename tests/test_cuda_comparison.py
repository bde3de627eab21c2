"""A device's record of a comparison amounts to the check that the host would have made."""

from __future__ import annotations

import itertools
from dataclasses import replace

import device_model
import numpy as np
import pytest
from device_cases import FLOATING, SIZES, WHOLE, Case, cases

from sweeper.backend.cuda.arrays import as_bytes
from sweeper.backend.cuda.comparison import check_of
from sweeper.backend.cuda.device_code import Split
from sweeper.model import Check
from sweeper.problem.verify import check, poison


def on_the_device(chosen: list[Case]) -> Check:
    """What becomes of the records that the device's kernels write."""
    compared = []
    for case in chosen:
        got, values = case.got.reshape(-1), case.reference.values.reshape(-1)
        bounds = None if case.array.dtype.is_integer else case.reference.bound.reshape(-1)
        pattern = int.from_bytes(as_bytes(poison(case.array)).tobytes()[: case.array.dtype.bytes], "little")
        share = Split.of(got.size).share
        parts = device_model.compare(got, got, values, bounds, share=share, negated=False, pattern=pattern)
        compared.append((case.array, device_model.conclude(got, values, bounds, parts, negated=False)))
    return check_of(compared)


def on_the_host(chosen: list[Case]) -> Check:
    return check(
        [case.array for case in chosen],
        {case.array.name: case.got for case in chosen},
        {case.array.name: case.reference for case in chosen},
    )


def told(check: Check) -> str:
    """All of it, to the last digit; NaN equals itself."""
    return repr(check)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [*FLOATING, *WHOLE])
def test_one_outputs_check_is_the_hosts(name: str, size: int) -> None:
    for seed in range(3):
        for case in cases(name, size, seed):
            assert told(on_the_device([case])) == told(on_the_host([case])), case.name


def test_a_check_of_several_outputs_is_the_hosts() -> None:
    """The worst element, the first five wrong ones and the counts are over all of them, in their order."""
    floats, wholes = list(cases("float32", 77, 1)), list(cases("int32", 1024, 2))
    for first, second in itertools.product(floats, wholes):
        other = replace(second, array=replace(second.array, name="D"))
        for chosen in ([first, other], [other, first]):
            assert told(on_the_device(chosen)) == told(on_the_host(chosen)), (first.name, other.name)


def test_no_element_is_left_out_or_compared_twice() -> None:
    for size in (1, 255, 256, 257, 1 << 20, (1 << 24) + 3, 67_108_864):
        split = Split.of(size)
        assert split.parts <= 2048
        assert (split.parts - 1) * split.share < size <= split.parts * split.share
        assert split.share % 256 == 0


def test_results_that_are_all_right_have_no_worst_element_where_they_are_exact() -> None:
    right = next(case for case in cases("int32", 77, 0) if case.name.endswith("right"))
    made = on_the_device([right])
    assert (made.passed, made.error_index, made.error_ratio, made.note) == (True, None, 0.0, "")
    assert np.array_equal(right.got, right.reference.values)
