"""Optional sizes, rows that lie apart and scratch: what a description says of them and what a problem makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from specs import gemm_spec, scalar

from sweeper.backend.emulator_sample import reduced_dims
from sweeper.check.shapes import edge_shapes
from sweeper.device import target
from sweeper.dtypes import DTYPES, dtype
from sweeper.errors import ConfigError
from sweeper.expressions import parse
from sweeper.kernel.sizes import completed, differing, shape_text, sizes_behind
from sweeper.model import ArraySpec, Direction, KernelSpec, Point
from sweeper.problem import Problem, resolve
from sweeper.problem.arguments import ResolvedArray
from sweeper.problem.storage import gap_damage, in_storage, valid_part
from sweeper.problem.verify import is_poison
from sweeper.resources.geometry import point_scope, why_unsupported

DIMS = {"M": 24, "N": 40, "K": 16}
H200 = target("h200")


def spec(*more: ArraySpec, **changes: Any) -> KernelSpec:
    """A product whose rows may lie apart, with `more` arguments."""
    made = gemm_spec(leading=True, **changes)
    optional = {"LDA": parse("K"), "LDB": parse("N"), "LDC": parse("N")}
    pitched = [
        replace(a, pitch=parse(f"LD{a.name}")) if isinstance(a, ArraySpec) else scalar(a.name, a.name.upper())
        for a in made.args
    ]
    return replace(made, args=(*pitched, *more), optional_dims=optional)


def scratch(name: str, *shape: str, fill: str = "zeros") -> ArraySpec:
    return ArraySpec(name, dtype("uint32"), tuple(map(parse, shape)), Direction.SCRATCH, fill)


def problem(dims: Mapping[str, int] = DIMS, point: Point | None = None, *more: ArraySpec) -> Problem:
    return resolve(spec(*more), dims, point, seed=1)


# --- Optional sizes -----------------------------------------------------------------------------------


def test_an_optional_size_follows_from_the_others_unless_it_is_given() -> None:
    assert completed(spec(), DIMS) == {**DIMS, "LDA": 16, "LDB": 40, "LDC": 40}
    assert completed(spec(), {**DIMS, "LDB": 64}) == {**DIMS, "LDA": 16, "LDB": 64, "LDC": 40}


def test_only_a_size_that_differs_from_its_default_is_told() -> None:
    """So a problem without gaps is the same however its leading dimensions were written."""
    assert differing(spec(), DIMS, {"LDA": 16, "LDB": 64}) == {"LDB": 64}
    same = problem({**DIMS, "LDA": 16, "LDB": 40, "LDC": 40})
    assert same.dims == DIMS
    assert same.key == problem().key
    assert problem({**DIMS, "LDC": 41}).key != problem().key


def test_a_shape_is_called_by_what_is_unusual_of_it() -> None:
    assert shape_text(DIMS, 3) == shape_text(DIMS) == "24x40x16"
    assert shape_text({**DIMS, "LDB": 64, "LDC": 41}, 3) == "24x40x16-ldb64-ldc41"


def test_a_condition_on_an_optional_size_is_one_on_what_it_follows_from() -> None:
    assert sizes_behind(spec(), ["LDA", "LDB"]) == {"K", "N"}
    assert sizes_behind(spec(), ["LDA", "LDB"], given=["LDB"]) == {"K", "LDB"}
    assert sizes_behind(spec(), ["tile", "M"]) == {"M"}


def test_expressions_may_name_optional_sizes() -> None:
    point = Point.of({"tile": 8})
    assert point_scope(spec(), point, DIMS, H200)["LDA"] == 16
    needs = replace(spec().requires, conditions=(parse("LDA % 4 == 0"),))
    assert why_unsupported(spec(requires=needs), DIMS, H200) is None
    assert "LDA = 17" in str(why_unsupported(spec(requires=needs), {**DIMS, "LDA": 17}, H200))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"LDA": 15}, "shape.lda = 15: a row of A has K = 16 elements"),
        ({"LDB": 39}, "shape.ldb = 39: a row of B has N = 40 elements"),
        ({"LDC": 0}, "shape.ldc = 0: must be at least 1"),
        ({"LDD": 5}, r"no size LDD \(did you mean 'LD[AC]'\?\)"),
        ({"LDA": 20.5}, "shape.lda = 20.5: not a whole number"),
    ],
)
def test_a_leading_dimension_that_cannot_be_is_one_clear_error(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        problem({**DIMS, **given})


# --- Rows that lie apart ------------------------------------------------------------------------------


def test_memory_counts_gaps_while_traffic_and_work_do_not() -> None:
    spaced, plain = problem({**DIMS, "LDA": 20, "LDC": 50}), problem()
    assert (spaced.bytes, spaced.flops) == (plain.bytes, plain.flops)
    assert spaced.total_bytes == plain.total_bytes + 4 * (23 * 4 + 23 * 10)
    assert [s.value for s in spaced.scalars] == [24, 40, 16, 20, 40, 50]


def test_the_same_numbers_are_in_it_wherever_its_rows_lie() -> None:
    plain, spaced = problem().inputs(), problem({**DIMS, "LDA": 20}).inputs()
    assert np.array_equal(plain["A"], spaced["A"])


def apart(name: str, shape: tuple[int, ...] = (5, 3, 4), pitch: int = 7) -> ResolvedArray:
    return ResolvedArray("C", dtype(name), shape, Direction.OUT, "uniform", row_pitch=pitch)


@pytest.mark.parametrize("name", DTYPES)
def test_between_rows_lies_poison_and_the_rest_is_the_array(name: str) -> None:
    array = apart(name)
    data = np.arange(60).reshape(5, 3, 4).astype(array.dtype.storage)
    stored = in_storage(array, data)
    assert stored.size == array.stored_size == 14 * 7 + 4
    assert np.array_equal(valid_part(array, stored), data)
    rows = np.concatenate([stored, stored[4:7]]).reshape(15, 7)
    assert is_poison(np.ascontiguousarray(rows[:14, 4:])).all()
    assert gap_damage(array, stored) is None


def test_what_was_written_between_rows_is_told_with_its_place() -> None:
    array = apart("float32")
    stored = in_storage(array, np.zeros((5, 3, 4), np.float32))
    stored[7 * 7 + 5] = stored[9 * 7 + 4] = 1
    assert str(gap_damage(array, stored)) == (
        "wrote between the rows of C: 2 elements, the first C[2, 1, 5] (rows of 4 elements, 7 apart)"
    )


@pytest.mark.parametrize(
    "array", [apart("float32", (1, 4)), apart("float32", (4,)), apart("int8", (3, 4), 4)]
)
def test_an_array_of_one_row_or_of_rows_that_touch_has_no_gaps(array: ResolvedArray) -> None:
    data = np.ones(array.shape, array.dtype.storage)
    assert not array.has_gaps
    assert in_storage(array, data).tobytes() == data.tobytes()
    assert gap_damage(array, in_storage(array, data)) is None


# --- Scratch ------------------------------------------------------------------------------------------


def test_scratch_is_an_argument_and_no_part_of_the_problem() -> None:
    parts = scratch("parts", "tile if tile > 8 else 0", "M")
    small, large = (problem(DIMS, Point.of({"tile": tile}), parts) for tile in (8, 32))
    assert [a.name for a in large.arrays] == ["A", "B", "C"]
    assert [a.shape for a in (*small.scratch, *large.scratch)] == [(0, 24), (32, 24)]
    assert large.args[-1] is large.scratch[0]
    assert small.key == large.key == problem().key
    assert (large.bytes, large.flops) == (problem().bytes, problem().flops)
    assert large.total_bytes - small.total_bytes == 4 * 32 * 24


def test_scratch_of_a_negative_size_is_an_error() -> None:
    with pytest.raises(ConfigError, match="size 0 of parts = tile - 9 = -1: must be at least 0"):
        problem(DIMS, Point.of({"tile": 8}), scratch("parts", "tile - 9"))


def test_a_scalar_is_no_part_of_a_contraction_but_of_what_a_function_reads() -> None:
    by_tile = replace(spec(), args=(*spec().args, scalar("tile", "tile")))
    keys = {resolve(by_tile, DIMS, Point.of({"tile": tile}), seed=1).key for tile in (8, 16)}
    assert len(keys) == 1


# --- Where a smaller shape stands for a larger one ----------------------------------------------------


def test_a_reduced_shape_keeps_the_gaps_and_their_remainders() -> None:
    point = Point.of({"tile": 16})
    large, small = (dict.fromkeys("MNK", size) for size in (1000, 136))
    reduced = reduced_dims(spec(), point, {**large, "LDA": 1003, "LDC": 2001}, H200)
    assert reduced == {**small, "LDA": 139, "LDC": 136 + 128 + 1001 % 32}


def test_edge_shapes_have_leading_dimensions_that_the_kernel_takes() -> None:
    point = Point.of({"tile": 8})
    shapes = edge_shapes(spec(), point, H200, limit=4).shapes
    assert shapes[2] == {"M": 31, "N": 33, "K": 17, "LDA": 20, "LDB": 39, "LDC": 42}
    needs = replace(spec().requires, conditions=(parse("LDA % 8 == 0 and LDB % 4 == 0"),))
    shapes = edge_shapes(spec(requires=needs), point, H200, limit=4).shapes
    assert shapes[0] == {"M": 1, "N": 4, "K": 8}, "moved to what its default leading dimension takes"
    spaced = [shape for shape in shapes if "LDA" in shape]
    assert [shape["LDA"] % 8 for shape in spaced] == [0]
