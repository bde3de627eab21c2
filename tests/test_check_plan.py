"""Which configurations and problem sizes a check runs, and what it says of those it leaves out."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from specs import gemm_spec, launch, param_specs, saxpy_spec

from sweeper.check.covering import cover
from sweeper.check.plan import Plan, make_plan
from sweeper.check.shapes import edge_shapes, why_infeasible
from sweeper.device import target
from sweeper.errors import NoValidConfiguration
from sweeper.expressions import parse
from sweeper.model import KernelSpec, Point, Requires

H200 = target("h200")


def product(*counts: int) -> np.ndarray:
    return np.array(list(itertools.product(*(range(count) for count in counts))))


def pairs(rows: np.ndarray) -> set[tuple[int, int, int, int]]:
    columns = range(rows.shape[1])
    return {(i, row[i], j, row[j]) for row in rows for i, j in itertools.combinations(columns, 2)}


def plan_of(spec: KernelSpec, *, configurations: int = 24, shapes: int = 16, **given: object) -> Plan:
    return make_plan(spec, H200, configurations=configurations, shapes=shapes, **given)  # type: ignore[arg-type]


def shapes_of(spec: KernelSpec, limit: int = 100, **params: int) -> list[str]:
    point = Point.of({**spec.default_point.params, **params})
    choice = edge_shapes(spec, point, H200, limit=limit)
    return ["x".join(str(size) for size in dims.values()) for dims in choice.shapes]


def test_every_pair_of_levels_takes_far_fewer_rows_than_the_product() -> None:
    rows = product(4, 4, 4, 4, 4)
    covering = cover(rows, [4] * 5, limit=1000)
    assert (covering.levels, covering.levels_of) == (20, 20)
    assert (covering.pairs, covering.pairs_of) == (160, 160)
    assert pairs(rows[list(covering.rows)]) == pairs(rows)
    assert 16 <= len(covering.rows) <= 32


def test_levels_come_before_pairs_where_the_limit_is_low() -> None:
    covering = cover(product(5, 4, 3), [5, 4, 3], limit=5)
    assert len(covering.rows) == 5
    assert covering.levels == covering.levels_of == 12
    assert covering.pairs < covering.pairs_of


def test_pairs_that_no_row_has_are_not_asked_for() -> None:
    rows = np.array([row for row in product(3, 3) if row[0] != row[1]])
    covering = cover(rows, [3, 3], limit=100)
    assert (covering.pairs, covering.pairs_of) == (6, 6)


def test_rows_that_are_wanted_come_first() -> None:
    covering = cover(product(4, 4), [4, 4], first=[7, 3, 7], limit=3)
    assert covering.rows[:2] == (7, 3)
    assert len(set(covering.rows)) == 3


def test_a_kernel_without_parameters_has_one_configuration() -> None:
    assert cover(np.zeros((1, 0), int), [], limit=8).rows == ()
    spec = saxpy_spec(params=(), launch=launch([128], ["ceil(N / 128)"]))
    assert [str(point) for point in plan_of(spec).configurations] == ["(no parameters)"]


@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    kept=st.floats(0.2, 1.0),
    limit=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
def test_a_covering_is_what_it_says(counts: list[int], kept: float, limit: int, seed: int) -> None:
    rows = product(*counts)
    rows = rows[np.random.default_rng(seed).random(len(rows)) < kept]
    if not len(rows):
        return
    covering = cover(rows, counts, limit=limit)
    assert covering == cover(rows, counts, limit=limit), "the same input, the same choice"
    chosen = rows[list(covering.rows)]
    assert len(set(covering.rows)) == len(covering.rows) <= limit
    assert covering.pairs == len(pairs(chosen))
    assert covering.pairs_of == len(pairs(rows))
    assert covering.levels == len({(i, v) for row in chosen for i, v in enumerate(row)})


def test_a_tile_is_read_off_the_grid_and_its_neighbours_are_shapes() -> None:
    shapes = shapes_of(gemm_spec(), tile=32)
    assert {"1x1x1", "31x31x31", "32x32x32", "33x33x33", "33x32x32", "32x33x32", "32x32x33"} <= set(shapes)
    assert {"1x33x17", "31x1x17", "31x33x1", "31x33x17", "33x65x129", "32x32x96"} <= set(shapes)
    assert len(set(shapes)) == len(shapes)


def test_what_a_block_covers_may_differ_from_axis_to_axis_and_from_its_threads() -> None:
    spec = gemm_spec(
        params={"bm": (64,), "bn": (48,), "bk": (8,)},
        launch=launch(["bm // 4", "bn // 4"], ["ceil(N / bn)", "ceil(M / bm)"]),
    )
    assert {"64x48x16", "65x49x17", "63x47x15"} <= set(shapes_of(spec)), "the model's steps: 16 along K"


def test_without_a_model_the_parameters_are_guesses_for_the_steps() -> None:
    spec = saxpy_spec(
        dims=("N", "K"),
        params=param_specs({"bk": (24,), "block": (64,)}),
        launch=launch(["block"], ["ceil(N / block)"]),
    )
    assert {"64x24", "65x25", "63x23", "64x64"} <= set(shapes_of(spec))


def test_a_grid_that_rounds_down_has_tiles_too() -> None:
    spec = gemm_spec(launch=launch(["tile", "tile"], ["N // tile", "M // tile"]))
    choice = edge_shapes(spec, spec.default_point, H200, limit=100)
    assert {"M": 8, "N": 8, "K": 8} in choice.shapes
    assert not any(dims["M"] < 8 or dims["N"] < 8 for dims in choice.shapes)
    assert choice.skipped > 0
    assert "is less than 1" in choice.reason


def test_a_size_that_a_condition_forbids_moves_to_its_nearest_neighbour() -> None:
    spec = gemm_spec(requires=Requires(conditions=(parse("K % 4 == 0"), parse("M <= 40"))))
    choice = edge_shapes(spec, spec.default_point, H200, limit=100)
    assert all(dims["K"] % 4 == 0 and dims["M"] <= 40 for dims in choice.shapes)
    assert {"M": 31, "N": 33, "K": 16} in choice.shapes, "where 17 is wanted"
    assert {"M": 1, "N": 1, "K": 4} in choice.shapes, "where 1 is wanted"
    assert choice.moved > 3
    assert choice.skipped == 0


def test_a_constraint_on_parameter_and_size_moves_shapes_configuration_by_configuration() -> None:
    constraints = tuple(parse(f"{name} % tile == 0") for name in "MNK")
    plan = plan_of(gemm_spec(constraints=constraints))
    assert len(plan.configurations) == 3
    for case in plan.cases:
        assert all(size % case.point.params["tile"] == 0 for size in case.dims.values())
    assert "moved" in str(plan)


def test_conditions_that_nothing_meets_are_counted_with_the_first_reason() -> None:
    spec = gemm_spec(requires=Requires(conditions=(parse("M == N and N == K and M > 30"),)))
    choice = edge_shapes(spec, spec.default_point, H200, limit=100)
    assert all(len(set(dims.values())) == 1 for dims in choice.shapes)
    assert choice.skipped > 0
    assert choice.reason.startswith("requires M == N")


def test_no_shape_has_more_work_than_an_emulator_does_in_a_moment() -> None:
    spec = gemm_spec(params={"block": (1024,)}, launch=launch(["block"], ["ceil(M * N / block)"]))
    sizes = [tuple(int(n) for n in shape.split("x")) for shape in shapes_of(spec)]
    assert max(m * n * k for m, n, k in sizes) <= 1 << 21
    assert any(m == 1025 for m, _, _ in sizes)


def test_a_limit_keeps_the_most_telling_shapes() -> None:
    assert shapes_of(gemm_spec(), limit=3, tile=16) == ["1x1x1", "31x33x17", "17x17x17"]


def test_the_default_and_the_extremes_are_among_the_configurations() -> None:
    spec = gemm_spec(
        params={"bm": (16, 32, 64), "bn": (16, 32, 64), "bk": (8, 16)},
        launch=launch(["bm", "bn // 4"], ["ceil(N / bn)", "ceil(M / bm)"], static_shared_bytes="bm * bk * 4"),
    )
    first = [point.params for point in plan_of(spec, configurations=5).configurations]
    threads = [p["bm"] * p["bn"] // 4 for p in first]  # type: ignore[operator]
    shared = [p["bm"] * p["bk"] * 4 for p in first]  # type: ignore[operator]
    assert first[0] == spec.default_point.params
    assert (max(threads), min(threads)) == (1024, 64)
    assert (max(shared), min(shared)) == (4096, 512)


def test_infeasible_configurations_are_never_chosen() -> None:
    spec = gemm_spec(params={"tile": (8, 16, 32, 64)}, constraints=())
    plan = plan_of(spec)
    assert [point.params["tile"] for point in plan.configurations] == [8, 32, 16], (
        "64 × 64 threads are too many"
    )
    assert (plan.feasible, plan.product) == (3, 4)
    assert str(plan).startswith("3 of 3 configurations (all 3 levels), 48 cases")


def test_given_shapes_replace_the_edge_shapes() -> None:
    given_shapes: Sequence[Mapping[str, int]] = [{"M": 5, "N": 6, "K": 7}, {"M": 8, "N": 8, "K": 8}]
    spec = gemm_spec(requires=Requires(conditions=(parse("M % 2 == 0"),)))
    plan = plan_of(spec, given=given_shapes)
    assert {case.shape for case in plan.cases} == {"8x8x8"}
    assert plan.skipped == 3
    assert "requires M % 2 == 0" in plan.reason
    with pytest.raises(NoValidConfiguration, match="no configuration can run at any of the shapes"):
        plan_of(spec, given=given_shapes[:1])


def test_why_a_case_cannot_run_is_said_with_its_numbers() -> None:
    spec = gemm_spec(constraints=(parse("K >= tile"),), requires=Requires(min_cc=(8, 0)))
    dims = {"M": 4, "N": 4, "K": 4}
    assert why_infeasible(spec, spec.default_point, dims, H200) == "K >= tile: 4 < 8"
    assert why_infeasible(spec, spec.default_point, {**dims, "K": 8}, H200) == ""
    assert "cc >= 8.0" in why_infeasible(spec, spec.default_point, dims, target("v100"))
