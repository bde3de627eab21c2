"""Spaces: which points are feasible and why not, in which order, and how a search moves among them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeper.errors import ConfigError, ExpressionError, NoValidConfiguration
from sweeper.expressions import Value, parse
from sweeper.model import ParamSpec, Point
from sweeper.space import Space, build_space, feasibility, joins

# CLBlast's xgemm: the levels and constraints of its restricted tuning run.
CLBLAST_LEVELS: dict[str, Sequence[Value]] = {
    "MWG": (16, 32, 64, 128),
    "NWG": (16, 32, 64, 128),
    "KWG": (32,),
    "MDIMC": (8, 16, 32),
    "NDIMC": (8, 16, 32),
    "MDIMA": (8, 16, 32),
    "NDIMB": (8, 16, 32),
    "KWI": (2,),
    "VWM": (1, 2, 4, 8),
    "VWN": (1, 2, 4, 8),
    "SA": (0, 1),
    "SB": (0, 1),
}
CLBLAST_CONSTRAINTS = (
    "KWG % KWI == 0",
    "MWG % (MDIMC * VWM) == 0",
    "NWG % (NDIMC * VWN) == 0",
    "MWG % (MDIMA * VWM) == 0",
    "NWG % (NDIMB * VWN) == 0",
    "KWG % ((MDIMC * NDIMC) / MDIMA) == 0",
    "KWG % ((MDIMC * NDIMC) / NDIMB) == 0",
)


def space_of(
    levels: Mapping[str, Sequence[Value]],
    *constraints: str,
    constants: Mapping[str, Value] | None = None,
    derived: Mapping[str, str] | None = None,
    **options: Any,
) -> Space:
    params = [ParamSpec(name, tuple(values), next(iter(values), 0)) for name, values in levels.items()]
    named = {name: parse(text) for name, text in (derived or {}).items()}
    return build_space(params, [parse(text) for text in constraints], constants or {}, named, **options)


def points(space: Space) -> list[tuple[Value, ...]]:
    return [tuple(value for _, value in space.point(row)) for row in range(len(space))]


def by_brute_force(
    levels: Mapping[str, Sequence[Value]], *constraints: str, constants: Mapping[str, Value] | None = None
) -> list[tuple[Value, ...]]:
    """All feasible choices in lexicographic order, each constraint evaluated at each point."""
    conditions = [parse(text) for text in constraints]

    def holds(choice: tuple[Value, ...]) -> bool:
        scope = {**(constants or {}), **dict(zip(levels, choice, strict=True))}
        try:
            return all(condition.evaluate(scope) for condition in conditions)
        except ExpressionError:
            return False

    return [choice for choice in itertools.product(*levels.values()) if holds(choice)]


@pytest.fixture(scope="module")
def clblast() -> Space:
    return space_of(CLBLAST_LEVELS, *CLBLAST_CONSTRAINTS)


class TestFeasiblePoints:
    def test_clblast_gemm_has_its_published_number_of_points(self, clblast: Space) -> None:
        assert clblast.product_size == 82_944
        assert len(clblast) == 17_956

    def test_rows_are_in_lexicographic_order_whatever_the_join_order(self, clblast: Space) -> None:
        rows = clblast.indices.tolist()
        assert rows == sorted(rows)
        assert len({tuple(row) for row in rows}) == len(rows)

    def test_constants_and_conjunctions(self) -> None:
        levels = {"bm": (16, 32, 64), "bn": (16, 32, 64), "stages": (1, 2, 3)}
        constraint = "bm * bn <= max_threads and stages * (bm + bn) * 64 <= shared and bm >= bn"
        constants: dict[str, Value] = {"max_threads": 1024, "shared": 8192}
        space = space_of(levels, constraint, constants=constants)
        assert points(space) == by_brute_force(levels, constraint, constants=constants)
        assert repr(space) == f"Space({len(space)} of 27 points over bm, bn, stages)"

    def test_text_truth_values_fractions_and_mixed_levels(self) -> None:
        levels: dict[str, Sequence[Value]] = {
            "layout": ("row", "column"),
            "vectorise": (False, True),
            "ratio": (0.25, 0.5, 1.0),
            "unroll": ("auto", 1, 2, 0.5),
        }
        constraints = (
            "layout == 'row' or not vectorise",
            "ratio * 2 >= vectorise",
            "unroll == 'auto' or unroll * ratio <= 1",
        )
        space = space_of(levels, *constraints)
        assert points(space) == by_brute_force(levels, *constraints)
        assert {type(v) for choice in points(space) for v in choice} == {str, bool, float, int}

    def test_a_row_without_a_value_is_infeasible(self) -> None:
        space = space_of({"a": (1, 2, 4), "b": (0, 1, 2)}, "a % b == 0")
        assert points(space) == [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2)]
        assert "division by zero in a % b (a = 1, b = 0)" in str(
            space.why_infeasible(Point.of({"a": 1, "b": 0}))
        )

    def test_logic_does_not_fault_on_rows_that_it_skips(self) -> None:
        space = space_of({"a": (1, 2, 3), "b": (0, 2)}, "b == 0 or a % b == 0")
        assert points(space) == [(1, 0), (2, 0), (2, 2), (3, 0)]

    def test_without_constraints_all_points_are_feasible(self) -> None:
        space = space_of({"a": (3, 1), "b": ("x", "y", "z")})
        assert points(space) == [(3, "x"), (3, "y"), (3, "z"), (1, "x"), (1, "y"), (1, "z")]

    def test_one_level_is_a_pinned_parameter(self) -> None:
        space = space_of({"bm": (32,), "tm": (4, 5, 8)}, "bm % tm == 0")
        assert points(space) == [(32, 4), (32, 8)]
        assert points(space_of({"bm": (32,)})) == [(32,)]

    def test_no_parameters_make_one_empty_point(self) -> None:
        space = space_of({}, "M % 4 == 0", constants={"M": 8})
        assert len(space) == space.product_size == 1
        assert space.point(0) == Point(())
        assert space.row(Point(())) == 0
        assert space.why_infeasible(Point(())) is None
        assert space.neighbours(0).tolist() == []
        assert space.nearest_feasible([]) == 0
        assert space.sample(np.random.default_rng(0), 3).tolist() == [0]

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True), min_size=2, max_size=5),
        st.lists(
            st.sampled_from(
                [
                    "{a} % {b} == 0",
                    "{a} * {b} <= 12",
                    "{b} <= {a} or {a} == 0",
                    "{a} + {b} in (3, 5, 8)",
                    "{a} != 1",
                    "{a} < {b} < 7 and {b} != 4",
                    "{a} / {b} >= 1.5",
                    "2 ** {a} < 40",
                ]
            ),
            max_size=6,
        ),
        st.randoms(use_true_random=False),
        st.sampled_from([(1 << 18, 1 << 18), (1, 1 << 18), (8, 7), (0, 1)]),
    )
    def test_are_those_of_brute_force(
        self, level_lists: list[list[int]], templates: list[str], random: Any, sizes: tuple[int, int]
    ) -> None:
        levels = dict(zip("pqrst", level_lists, strict=False))
        names = list(levels)
        constraints = [t.format(a=random.choice(names), b=random.choice(names)) for t in templates]
        expected = by_brute_force(levels, *constraints)
        with pytest.MonkeyPatch.context() as patch:
            # Small tables and blocks take the paths of large spaces.
            patch.setattr(joins, "TABLE_CELLS", sizes[0])
            patch.setattr(joins, "_BLOCK_CELLS", sizes[1])
            if expected:
                assert points(space_of(levels, *constraints)) == expected
            else:
                with pytest.raises(NoValidConfiguration):
                    space_of(levels, *constraints)


class TestLargeProducts:
    def test_a_product_of_a_trillion_points_is_never_built(self) -> None:
        levels = {f"p{i}": tuple(range(1, 11)) for i in range(12)}
        constraints = [f"p{i} * p{i + 1} == 12 and p{i} != p{i + 1}" for i in range(0, 11, 2)]
        constraints += [f"p{i} + p{i + 1} <= 9" for i in range(1, 11, 2)]
        constraints += [" + ".join(levels) + " <= 48"]
        space = space_of(levels, *constraints)
        assert space.product_size == 10**12
        assert len(space) == 1093
        assert all(math.prod(choice) == 12**6 for choice in points(space))

    def test_products_beyond_64_bits_have_exact_rows(self) -> None:
        levels = {f"p{i}": tuple(range(10)) for i in range(40)}
        chain = [f"p{i} == p{i + 1}" for i in range(38)]
        space = space_of(levels, *chain, "p38 <= p39")
        assert space.product_size == 10**40
        assert len(space) == 55
        rows = space.indices.tolist()
        assert rows == sorted(rows)
        for row in range(len(space)):
            assert space.row(space.point(row)) == row
        assert space.row(Point.of({**space.point(0).params, "p20": 1})) is None
        zeros = space.row(Point.of(dict.fromkeys(levels, 0)))
        assert zeros is not None
        changed = [space.point(int(row)).params["p39"] for row in space.neighbours(zeros, "hamming")]
        assert changed == list(range(1, 10))

    def test_too_many_feasible_points_are_refused_with_both_sizes(self) -> None:
        levels = {"a": range(100), "b": range(100), "c": range(50)}
        with pytest.raises(ConfigError) as caught:
            space_of(levels, "a <= b", max_points=1000)
        assert "more than 1,000 feasible points of 500,000 combinations; at most 1,000 are kept" in str(
            caught.value
        )
        assert "add constraints, or give the parameters fewer levels" in str(caught.value)
        with pytest.raises(ConfigError, match=r"has 252,500 feasible points of 500,000 combinations"):
            space_of(levels, "a <= b", max_points=10_000)
        assert len(space_of(levels, "a <= b", max_points=252_500)) == 252_500

    def test_constraints_too_loose_to_join_are_refused(self) -> None:
        levels = {f"p{i}": tuple(range(10)) for i in range(12)}
        with pytest.raises(
            ConfigError, match=r"too loose to join: .* partial combinations looked at of 1,000,000"
        ):
            space_of(levels, " + ".join(levels) + " == 7", max_points=1000)

    def test_an_empty_part_is_found_beside_an_enormous_one(self) -> None:
        levels = {**{f"p{i}": tuple(range(100)) for i in range(6)}, "q": (1, 3)}
        with pytest.raises(NoValidConfiguration, match="q % 2 == 0 alone removes 2,000,000,000,000"):
            space_of(levels, "p0 <= p1", "q % 2 == 0", max_points=1000)


class TestNothingFeasible:
    def test_names_the_constraint_that_removes_most_with_counts(self) -> None:
        with pytest.raises(NoValidConfiguration) as caught:
            space_of({"bm": (32, 64), "bn": (32, 64, 128)}, "bm >= 64", "bm * bn < bm", "bn <= 64")
        assert caught.value.exit_code == 1
        assert str(caught.value) == (
            "no configuration satisfies the constraints: 0 of 6 are left; bm * bn < bm alone removes 6;"
            " bm >= 64 alone removes 3; bn <= 64 alone removes 2"
            "\n  at the default: bm >= 64: 32 < 64"
        )

    def test_constraints_that_exclude_each_other(self) -> None:
        with pytest.raises(NoValidConfiguration, match="a < 2 alone removes 1; a > 1 alone removes 1"):
            space_of({"a": (1, 2)}, "a < 2", "a > 1")

    def test_a_default_that_is_no_level_is_not_explained(self) -> None:
        with pytest.raises(NoValidConfiguration, match="relax a constraint, or add levels"):
            build_space([ParamSpec("a", (1, 2), 7)], [parse("a > 2")], {})

    def test_a_constraint_that_no_parameter_can_satisfy(self) -> None:
        with pytest.raises(NoValidConfiguration, match=r"K % 4 == 0: 2 != 0 \(K = 130\)"):
            space_of({"a": (1, 2)}, "a > 0", "K % 4 == 0", constants={"K": 130})


class TestMistakes:
    @pytest.mark.parametrize(
        ("levels", "message"),
        [
            ((), "parameter 'a' has no levels"),
            ((8, 16, 8), "parameter 'a': level 8 occurs twice"),
            ((1, True), "parameter 'a': level True equals its level 1"),
            ((2, 2.0), "parameter 'a': level 2.0 equals its level 2"),
            ((1, None), "level None is not a number, text or truth value"),
            ((1, [2]), r"level \[2\] is not a number, text or truth value"),
            ((math.nan,), "level nan is not a number within 64 bits"),
            ((2**63,), "is not a number within 64 bits"),
        ],
    )
    def test_in_levels(self, levels: Any, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            space_of({"a": levels})

    def test_a_parameter_twice(self) -> None:
        with pytest.raises(ConfigError, match="parameter 'a' is declared twice"):
            build_space([ParamSpec("a", (1,), 1), ParamSpec("a", (2,), 2)], [], {})

    def test_names_with_two_meanings(self) -> None:
        with pytest.raises(ConfigError, match="parameter 'M' has the name of a constant, M = 512"):
            space_of({"M": (1, 2)}, constants={"M": 512})
        with pytest.raises(ConfigError, match=r"name of a derived value, block_x = block_x \* 2"):
            space_of({"block_x": (1, 2)}, derived={"block_x": "block_x * 2"})
        with pytest.raises(ConfigError, match="'M' is both a constant and a derived value"):
            space_of({"a": (1, 2)}, constants={"M": 512}, derived={"M": "a"})

    def test_unknown_names(self) -> None:
        with pytest.raises(ExpressionError, match="unknown name 'tlie' in 'tlie > 2'\n  did you mean 'tile'"):
            space_of({"tile": (1, 2)}, "tlie > 2")
        with pytest.raises(ExpressionError, match="unknown name 'tlie'"):
            space_of({"tile": (1, 2)}, derived={"threads": "tlie * 2"})

    def test_text_in_arithmetic(self) -> None:
        with pytest.raises(
            ExpressionError, match="'layout < 3' has no value at any level: text 'row' under `<`"
        ):
            space_of({"layout": ("row", "column")}, "layout < 3")

    def test_kind_of_neighbours(self) -> None:
        with pytest.raises(ConfigError, match="unknown kind of neighbours 'near'"):
            space_of({"a": (1, 2)}).neighbours(0, "near")  # type: ignore[arg-type]

    def test_rows_and_vectors_out_of_range(self) -> None:
        space = space_of({"a": (1, 2)})
        for row in (-1, 2):
            with pytest.raises(IndexError):
                space.point(row)
        for vector in ([0, 1], [math.nan]):
            with pytest.raises(ValueError, match="expected 1 finite level indices"):
                space.nearest_feasible(vector)


class TestDerivedNames:
    LEVELS: Mapping[str, Sequence[Value]] = {"tx": (8, 32, 64), "ty": (1, 4, 32)}
    DERIVED: Mapping[str, str] = {
        "threads": "block_x * block_y * block_z",
        "block_x": "tx",
        "block_y": "ty",
        "block_z": "1",
        "grid_x": "ceil(N / block_x)",
    }

    def build(self, *constraints: str, **derived: str) -> Space:
        constants: dict[str, Value] = {"N": 100, "max_threads": 1024}
        return space_of(self.LEVELS, *constraints, constants=constants, derived={**self.DERIVED, **derived})

    def test_stand_for_expressions_over_one_another(self) -> None:
        space = self.build("64 <= threads <= max_threads", "grid_x < 10")
        assert points(space) == [(32, 4), (32, 32), (64, 1), (64, 4)]

    def test_are_explained_by_name(self) -> None:
        space = self.build("threads <= max_threads")
        assert space.why_infeasible(Point.of({"tx": 64, "ty": 32})) == "threads <= max_threads: 2048 > 1024"

    def test_may_repeat_the_name_of_the_parameter_that_they_equal(self) -> None:
        derived = {"block_x": "block_x", "threads": "block_x * 2"}
        assert points(space_of({"block_x": (8, 16)}, "threads < 20", derived=derived)) == [(8,)]

    def test_without_a_value_make_a_point_infeasible(self) -> None:
        space = self.build("waves < 5", waves="N // (ty - 1)")
        assert points(space) == [(tx, 32) for tx in (8, 32, 64)]
        assert space.why_infeasible(Point.of({"tx": 8, "ty": 1})) == (
            "waves has no value: division by zero in N // (ty - 1) (N = 100, ty = 1), in 'waves < 5'"
        )
        assert points(self.build("ty == 1 or waves < 5", waves="N // (ty - 1)")) == [
            (tx, ty) for tx in (8, 32, 64) for ty in (1, 32)
        ]

    def test_must_not_form_a_circle(self) -> None:
        with pytest.raises(ConfigError, match="in a circle or too deeply: a → b → c → a"):
            space_of({"x": (1,)}, derived={"a": "b + x", "b": "c", "c": "2 * a"})
        with pytest.raises(ConfigError, match="too deeply"):
            space_of({"x": (1,)}, derived={f"d{i}": f"d{i + 1} + x" for i in range(100)} | {"d100": "1"})

    def test_that_depend_on_constants_alone_are_constants(self) -> None:
        with pytest.raises(NoValidConfiguration, match="blocks < 2: 7 >= 2"):
            self.build("blocks < 2", blocks="ceil_div(N, 16)")


class TestWhyInfeasible:
    def test_names_the_first_violated_constraint_with_its_numbers(self) -> None:
        levels = {"bm": (32, 64, 128), "bn": (32, 64, 128)}
        constraints = ("bm >= bn", "2 * bm * bn * 4 <= 49152 and bm < 128")
        space = space_of(levels, *constraints)
        assert space.why_infeasible(Point.of({"bm": 64, "bn": 64})) is None
        assert space.why_infeasible(Point.of({"bm": 32, "bn": 64})) == "bm >= bn: 32 < 64"
        assert space.why_infeasible(Point.of({"bn": 64, "bm": 128})) == (
            "2 * bm * bn * 4 <= 49152: 65536 > 49152 (bm = 128, bn = 64)"
        )
        assert space.why_infeasible(Point.of({"bm": 128, "bn": 32})) == "bm < 128: 128 >= 128"

    @pytest.mark.parametrize(
        ("params", "reason"),
        [
            ({"tlie": 8, "vec": 4}, "unknown parameter 'tlie'; did you mean 'tile'?"),
            ({"tile": 8, "vec": 4, "depth": 1}, "unknown parameter 'depth'; parameters: tile, vec"),
            ({"vec": 4}, "no value for parameter 'tile'"),
            ({}, "no value for parameter 'tile', 'vec'"),
            ({"tile": 12, "vec": 4}, "tile = 12 is not one of its levels 8, 16"),
            ({"tile": "8", "vec": 4}, "tile = '8' is not one of its levels 8, 16"),
        ],
    )
    def test_names_what_is_wrong_with_a_point(self, params: dict[str, Value], reason: str) -> None:
        space = space_of({"tile": (8, 16), "vec": (1, 4)}, "tile * vec < 64")
        assert space.why_infeasible(Point.of(params)) == reason
        assert space.row(Point.of(params)) is None

    def test_agrees_with_membership_on_ten_thousand_random_points(self, clblast: Space) -> None:
        rng = np.random.default_rng(0)
        names = list(CLBLAST_LEVELS)
        columns = [rng.choice(levels, size=10_000).tolist() for levels in CLBLAST_LEVELS.values()]
        feasible = set(points(clblast))
        verdicts = set()
        for choice in zip(*columns, strict=True):
            point = Point(tuple(zip(names, choice, strict=True)))
            row, reason = clblast.row(point), clblast.why_infeasible(point)
            assert (row is None) == (reason is not None) == (choice not in feasible)
            verdicts.add(row is None)
        assert verdicts == {True, False}

    def test_reasons_agree_with_evaluation_at_the_point(self, clblast: Space) -> None:
        conditions = [parse(text) for text in CLBLAST_CONSTRAINTS]
        for choice in itertools.islice(itertools.product(*CLBLAST_LEVELS.values()), 0, None, 997):
            scope = dict(zip(CLBLAST_LEVELS, choice, strict=True))
            violated = [condition for condition in conditions if not condition.evaluate(scope)]
            expected = violated[0].explain(scope) if violated else None
            assert clblast.why_infeasible(Point.of(scope)) == expected


class TestFeasibilityWithoutASpace:
    def test_decides_the_same(self, clblast: Space) -> None:
        params = [ParamSpec(name, tuple(levels), levels[0]) for name, levels in CLBLAST_LEVELS.items()]
        rules = feasibility.Feasibility(params, [parse(text) for text in CLBLAST_CONSTRAINTS], {}, {})
        rng = np.random.default_rng(1)
        for indices in rng.integers(0, rules.counts, size=(300, len(params))).tolist():
            point = Point(tuple((p.name, p.levels[i]) for p, i in zip(params, indices, strict=True)))
            assert rules.indices_of(point) == tuple(indices)
            assert rules.violation(indices) == clblast.why_infeasible(point)

    def test_its_scope_holds_every_name(self) -> None:
        derived = {"threads": parse("tile * 2")}
        rules = feasibility.Feasibility([ParamSpec("tile", (8, 16), 8)], [], {"N": 64}, derived)
        assert dict(rules.scope({0: 1})) == {"N": 64, "tile": 16, "threads": 32}
        assert len(rules.scope({0: 1})) == 3


class TestRows:
    def test_points_and_rows_are_inverse(self, clblast: Space) -> None:
        for row in range(0, len(clblast), 101):
            assert clblast.row(clblast.point(row)) == row

    def test_points_are_found_whatever_the_order_of_their_parameters(self, clblast: Space) -> None:
        point = clblast.point(4711)
        assert clblast.row(Point(tuple(reversed(point.items)))) == 4711

    def test_indices_are_read_only_level_indices(self, clblast: Space) -> None:
        assert clblast.indices.shape == (17_956, 12)
        with pytest.raises(ValueError, match="read-only"):
            clblast.indices[0, 0] = 1
        difference = clblast.indices[:1] - clblast.indices[-1:]
        assert difference.min() < 0

    def test_a_parameter_may_have_very_many_levels(self) -> None:
        space = space_of({"a": range(40_000), "b": (1, 2)}, "a % 20000 == 0")
        assert points(space) == [(0, 1), (0, 2), (20_000, 1), (20_000, 2)]


class TestNeighbours:
    LEVELS: Mapping[str, Sequence[Value]] = {"a": (1, 2, 3, 4, 5), "b": (0, 1, 2), "c": ("x", "y")}
    CONSTRAINTS = ("a != 3 or b == 2", "c == 'x' or a + b > 3")

    @pytest.fixture
    def space(self) -> Space:
        return space_of(self.LEVELS, *self.CONSTRAINTS)

    def near(self, space: Space, kind: Any, *choice: Value) -> list[tuple[Value, ...]]:
        row = space.row(Point(tuple(zip(self.LEVELS, choice, strict=True))))
        assert row is not None
        return [tuple(v for _, v in space.point(int(other))) for other in space.neighbours(row, kind)]

    def test_hamming_neighbours_differ_in_one_parameter(self, space: Space) -> None:
        everything = points(space)
        for choice in everything:
            differing = [o for o in everything if sum(x != y for x, y in zip(o, choice, strict=True)) == 1]
            found = self.near(space, "hamming", *choice)
            assert sorted(found) == sorted(differing)

    def test_adjacent_neighbours_step_to_the_nearest_feasible_level(self, space: Space) -> None:
        assert self.near(space, "adjacent", 2, 0, "x") == [(1, 0, "x"), (4, 0, "x"), (2, 1, "x")]
        assert self.near(space, "adjacent", 5, 1, "y") == [(4, 1, "y"), (5, 0, "y"), (5, 2, "y"), (5, 1, "x")]

    def test_an_isolated_point_has_none(self) -> None:
        space = space_of({"a": (1, 2), "b": (1, 2)}, "a == b")
        assert space.neighbours(0).tolist() == space.neighbours(0, "hamming").tolist() == []


class TestSamples:
    def test_rows_are_distinct_and_repeatable(self, clblast: Space) -> None:
        first = clblast.sample(np.random.default_rng(7), 500)
        assert len(set(first.tolist())) == 500
        assert first.tolist() == clblast.sample(np.random.default_rng(7), 500).tolist()
        assert first.tolist() != clblast.sample(np.random.default_rng(8), 500).tolist()
        assert 0 <= first.min() <= first.max() < len(clblast)

    def test_more_than_there_are_is_all_of_them(self) -> None:
        space = space_of({"a": (1, 2, 3)})
        assert sorted(space.sample(np.random.default_rng(0), 10).tolist()) == [0, 1, 2]


class TestNearestFeasible:
    def test_is_the_point_itself_where_it_is_feasible(self, clblast: Space) -> None:
        for row in (0, 1234, 17_955):
            assert clblast.nearest_feasible(clblast.indices[row]) == row

    def test_counts_each_parameter_by_the_span_of_its_levels(self) -> None:
        space = space_of({"a": range(11), "b": (0, 1)}, "a in (0, 10) or b == 1")
        # From a=3, b=0: a=0 lies 0.3 of its span away, b=1 the whole of its own.
        assert points(space)[space.nearest_feasible([3, 0]) or 0] == (0, 0)
        assert points(space)[space.nearest_feasible([3.4, 0.9]) or 0] == (3, 1)

    def test_takes_the_first_of_equally_near_points(self) -> None:
        space = space_of({"a": (0, 1, 2), "b": (0, 1, 2)}, "a != 1 or b != 1")
        assert points(space)[space.nearest_feasible([1, 1]) or 0] == (0, 1)

    def test_leaves_out_excluded_rows(self) -> None:
        space = space_of({"a": (0, 1, 2)})
        exclude = np.array([False, True, False])
        assert space.nearest_feasible([1.2], exclude=exclude) == 2
        assert space.nearest_feasible([1.2], exclude=np.ones(3, dtype=bool)) is None

    def test_is_nearest_by_brute_force(self, clblast: Space) -> None:
        rng = np.random.default_rng(3)
        span = np.maximum(1, [len(levels) - 1 for levels in clblast.levels])
        for _ in range(20):
            wanted = rng.uniform(0, span)
            distance = (np.abs(clblast.indices - wanted) / span).sum(axis=1)
            row = clblast.nearest_feasible(wanted)
            assert row is not None
            assert distance[row] == pytest.approx(distance.min(), abs=1e-12)


class TestRemovedBy:
    def test_counts_what_each_constraint_excludes_on_its_own(self) -> None:
        space = space_of({"a": (1, 2, 3, 4), "b": (1, 2, 3)}, "a <= 2 and b < 3", "a != b", "1 < 2")
        assert space.removed_by == {"a <= 2 and b < 3": 8, "a != b": 3, "1 < 2": 0}

    def test_estimates_where_combinations_are_many(self) -> None:
        levels = {"a": range(1000), "b": range(1000)}
        space = space_of(levels, "a <= b")
        assert space.removed_by["a <= b"] == pytest.approx(499_500, rel=0.02)

    def test_constraints_too_large_to_tabulate_still_decide(self) -> None:
        levels = {"a": range(1000), "b": range(1000)}
        assert feasibility.TABLE_CELLS < 1000 * 1000
        assert len(space_of(levels, "a + b == 700")) == 701
