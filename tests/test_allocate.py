"""Who of several searches gets the next evaluations of a budget that they share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.tune import Grant, Standing, grant, past_gain
from sweeper.tune.allocate import LEAST

PART = 8


def spend(
    standings: Sequence[Standing], budget: int, gain: Callable[[int, int], float | None]
) -> list[Standing]:
    """What everyone has in the end; `gain` says what the search at a place expects once it has asked so many."""
    now = list(standings)
    while (more := grant(now, budget, PART)) is not None:
        one = now[more.place]
        assert more.count > 0
        asked = one.asked + more.count
        assert asked <= one.size
        now[more.place] = replace(one, asked=asked, gain=gain(more.place, asked))
    return now


def asked(standings: Sequence[Standing]) -> list[int]:
    return [one.asked for one in standings]


def test_each_gets_the_least_first_one_after_the_other() -> None:
    three = [Standing(0, 500)] * 3
    assert grant(three, 300, PART) == Grant(0, LEAST)
    three[0] = replace(three[0], asked=LEAST, gain=9.0)
    assert grant(three, 300, PART) == Grant(1, LEAST)


def test_a_small_budget_is_shared_alike() -> None:
    assert asked(spend([Standing(0, 500)] * 4, 4 * LEAST - 40, lambda *_: 1.0)) == [LEAST - 10] * 4
    assert asked(spend([Standing(0, 500)] * 3, 2, lambda *_: 1.0)) == [1, 1, 0]


def test_who_expects_most_has_the_rest() -> None:
    found = asked(spend([Standing(0, 500)] * 3, 300, lambda place, _: (0.001, 0.1, 0.001)[place]))
    assert found == [LEAST, 300 - 2 * LEAST, LEAST]


def test_a_hope_that_is_not_fulfilled_gives_way() -> None:
    found = asked(spend([Standing(0, 500)] * 2, 300, lambda place, _: (0.02, 0.01)[place]))
    assert found[0] > found[1] > LEAST
    assert found[0] / found[1] == pytest.approx(2, rel=0.1)


def test_a_shape_that_counts_more_gets_more() -> None:
    alike = asked(spend([Standing(0, 500), Standing(0, 500)], 200, lambda _, n: 1 / n))
    heavy = asked(spend([Standing(0, 500, 4.0), Standing(0, 500)], 200, lambda _, n: 1 / n))
    assert abs(alike[0] - alike[1]) <= PART
    assert heavy[0] / heavy[1] == pytest.approx(2, rel=0.15)


def test_a_search_without_a_model_is_judged_by_its_past() -> None:
    settled = Standing(40, 500, past=past_gain([1.0] * 40))
    moving = Standing(40, 500, past=past_gain([2.0] * 20 + [1.0] * 20))
    assert grant([settled, moving], 200, PART) == Grant(1, PART)


def test_a_past_gain_is_what_the_later_half_won() -> None:
    flat = past_gain([3.0, 3.0, 3.0, 3.0])
    assert past_gain([4.0, 2.0, None, 1.0]) - flat == pytest.approx(math.log(2))
    assert past_gain([None, None, 5.0]) == past_gain([]) > past_gain([9.0, 8.0])


def test_what_is_used_up_or_out_asks_for_nothing() -> None:
    small, out = Standing(0, 4), Standing(0, 500, over=True)
    assert asked(spend([small, out, Standing(0, 60)], 1000, lambda *_: 1.0)) == [4, 0, 60]
    assert grant([out], 10, PART) is None
    assert grant([], 10, PART) is None


def test_a_part_is_at_least_one_evaluation() -> None:
    with pytest.raises(ValueError, match="part of 0"):
        grant([Standing(0, 5)], 10, 0)


@given(
    sizes=st.lists(st.integers(0, 90), min_size=1, max_size=6),
    budget=st.integers(0, 400),
    gains=st.lists(st.one_of(st.none(), st.floats(0, 10)), min_size=6, max_size=6),
)
def test_exactly_the_budget_is_spent_or_everything_asked(
    sizes: list[int], budget: int, gains: list[float | None]
) -> None:
    found = spend([Standing(0, size) for size in sizes], budget, lambda place, _: gains[place])
    assert sum(asked(found)) == min(budget, sum(sizes))
    again = spend([Standing(0, size) for size in sizes], budget, lambda place, _: gains[place])
    assert found == again
