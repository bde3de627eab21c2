"""Bounds of conditions: what is dropped early would have failed at every completion."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from expression_strategies import ROWS, SCOPES, TREES
from hypothesis import HealthCheck, given, settings

from sweeper.errors import ExpressionError
from sweeper.expressions import Value, parse
from sweeper.expressions.syntax import Node, render
from sweeper.space.bounds import Interval, interval_of, may_hold


def possible(text: str, **ranges: Any) -> bool:
    """Whether `text` may hold for values within `(low, high)` ranges, or at plain values."""
    intervals = {name: interval_of(r if isinstance(r, tuple) else [r]) for name, r in ranges.items()}
    return bool(may_hold(parse(text).tree, intervals, {}))


@pytest.mark.parametrize(
    "text",
    [
        "a * b > 64",
        "a + b < 2",
        "a - b > 7",
        "b - a >= 8",
        "-a > 0",
        "a // b > 8",
        "a % b > 8",
        "a / b < 0.1",
        "2 ** a > 257",
        "min(a, b) > 8 or max(a, b) < 1",
        "abs(a - 20) < 12",
        "ceil(a / b) > 8",
        "ceil_div(a, b) < 1",
        "floor(a / b) > 8",
        "int(a / b) < 0",
        "log2(a) > 3.01",
        "a == 9",
        "a != b and a > 8",
        "a in (0, 9, 10)",
        "1 <= b <= a < 1",
        "not a < 9",
        "(a if b < 9 else 100) > 8",
        "(100 if b > 8 else a) > 8",
        "(a if b > 4 else b) > 8",
        "0 * a",
    ],
)
def test_conditions_out_of_reach_are_dropped(text: str) -> None:
    assert not possible(text, a=(1, 8), b=(1, 8))


@pytest.mark.parametrize(
    "text",
    [
        "a * b == 64",
        "a // b == 8",
        "a % b == 0",
        "a / z > 100",
        "a % z == 3",
        "z ** a > 100",
        "a not in (1, 2)",
        "a != b",
        "s == 'x'",
        "s in ('x', 'y')",
        "s == 'x' and a > 7",
        "huge + 1 > huge",
        "huge + 1 - huge == 1",
        "a // 0.1 == 9",
        "a / b * b == a",
    ],
)
def test_conditions_within_reach_are_kept(text: str) -> None:
    assert possible(text, a=(1, 8), b=(1, 8), z=(-1, 1), s=("x", "y"), huge=2**62)


def test_a_dividend_below_its_divisor_is_the_remainder() -> None:
    assert not possible("a % b == 0", a=(1, 7), b=(8, 64))
    assert possible("a % b == 0", a=(1, 8), b=(8, 64))


def test_each_row_has_its_own_bounds() -> None:
    rows = interval_of(np.array([1, 4, 16]), each=True)
    others = interval_of((2, 4))
    kept = may_hold(parse("a * b <= 16").tree, {"a": rows, "b": others}, {})
    assert kept.tolist() == [True, True, False]


def test_definitions_are_bounded_like_what_they_stand_for() -> None:
    intervals: dict[str, Interval] = {"tile": interval_of((8, 16))}
    definitions = {"threads": parse("tile * tile").tree, "warps": parse("threads // 32").tree}
    assert may_hold(parse("warps > 7").tree, intervals, definitions)
    assert not may_hold(parse("warps > 8").tree, intervals, definitions)


def _holds(condition: Any, scope: dict[str, Value]) -> bool:
    try:
        return bool(condition.evaluate(scope))
    except ExpressionError:
        return False


@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(TREES, SCOPES)
def test_what_holds_at_some_values_is_never_dropped(tree: Node, scope: dict[str, Any]) -> None:
    """Two columns are known row by row; the others only by the range of their values."""
    condition = parse(render(tree))
    known = [name for name in ("i", "j") if name in condition.names]
    ranged = [name for name in condition.names if isinstance(scope[name], list) and name not in known]
    intervals = {n: interval_of(np.array(scope[n]), each=True) for n in known}
    for name in condition.names - set(known):
        values = scope[name] if name in ranged else [scope[name]]
        intervals[name] = interval_of(np.array(values, dtype=object if name == "m" else None))
    kept = np.broadcast_to(may_hold(condition.tree, intervals, {}), ROWS)
    choices = list(itertools.islice(itertools.product(*(scope[name] for name in ranged)), 40))
    for row in range(ROWS):
        fixed = {n: scope[n][row] if n in known else scope[n] for n in condition.names}
        if any(_holds(condition, {**fixed, **dict(zip(ranged, choice, strict=True))}) for choice in choices):
            assert kept[row]


def test_a_difference_that_float64_rounds_away_is_not_lost() -> None:
    """2^53 and 2^53 + 1 are one float64: their difference must not pass for zero."""
    condition = parse("9007199254740992 - 9007199254740993").tree
    assert bool(may_hold(condition, {}, {}))
