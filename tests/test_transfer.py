"""A search that begins with what was measured of the same configurations under other conditions."""

from __future__ import annotations

import numpy as np
import pytest
from contract.search_contract import SearchContract, bowl, drive, register_tiled, space_of

from sweeper.errors import ConfigError
from sweeper.search import Strategy, make
from sweeper.search.transfer import FIRST, Transfer
from sweeper.space import Space


def bowls(space: Space, factor: float = 1.0, moved: float = 0.0) -> np.ndarray:
    """The times of a bowl whose bottom is moved by some levels along every parameter."""
    middle = np.array([len(levels) - 1 for levels in space.levels]) / 2 + moved
    return factor * (1.0 + 0.02 * ((space.indices - middle) ** 2).sum(axis=1))


@pytest.fixture
def space() -> Space:
    return space_of(a=list(range(9)), b=list(range(9)), c=list(range(3)))


class TestTransfer(SearchContract):
    def strategy(self, space: Space, seed: int = 0) -> Strategy:
        return make("guided", space, seed, {"startup": 3}, measured=[bowls(space, moved=1.0)])


def test_the_others_best_is_asked_first_and_then_not_all_that_are_like_it() -> None:
    # Parameter c makes no difference there: eight configurations are equally the best.
    space = space_of(a=list(range(9)), b=list(range(9)), c=list(range(8)))
    elsewhere = 1.0 + 0.02 * ((space.indices[:, :2] - 4.0) ** 2).sum(axis=1)
    asked = make("guided", space, measured=[elsewhere]).ask(8)
    assert elsewhere[asked[0]] == elsewhere.min()
    assert (elsewhere[asked] > elsewhere.min()).any()
    assert (elsewhere[asked] <= 1.1).all()


def test_of_several_the_best_of_each_comes_first_and_the_nearest_before_all(space: Space) -> None:
    near, far = bowls(space, 3.0, moved=-2.0), bowls(space, 0.1, moved=3.0)
    asked = make("guided", space, measured=[near, far]).ask(2)
    assert asked == [int(near.argmin()), int(far.argmin())]


def test_how_much_larger_the_problem_is_does_not_matter(space: Space) -> None:
    elsewhere = bowls(space, moved=1.0)
    one, other = (make("guided", space, measured=[factor * elsewhere]) for factor in (1.0, 64.0))
    times = bowls(space)
    for _ in range(FIRST):
        (row,), (same,) = one.ask(1), other.ask(1)
        assert row == same
        one.tell(row, float(times[row]))
        other.tell(row, float(times[row]))


def test_a_neighbour_whose_best_lies_elsewhere_still_shortens_the_way() -> None:
    space = register_tiled()
    times = np.array([bowl(space, row) for row in range(len(space))])
    elsewhere = np.array([bowl(space, row) * (1 + 0.3 * np.sin(row)) for row in range(len(space))])

    def best(**known: list[np.ndarray]) -> float:
        found = [
            min(times[row] for row in drive(space, make("guided", space, seed, **known), FIRST))
            for seed in range(10)
        ]
        return float(np.median(found))

    assert best(measured=[elsewhere]) < best()
    assert best(measured=[elsewhere]) <= 1.03 * times.min()


def test_of_two_valleys_elsewhere_the_better_one_here_is_gone_into() -> None:
    space = space_of(a=list(range(20)), b=list(range(5)))
    a, b = space.indices.T
    elsewhere = np.minimum(1.0 + 0.03 * (a - 3) ** 2, 1.1 + 0.03 * (a - 16) ** 2) + 0.02 * (b - 2) ** 2
    times = elsewhere * np.where(a < 10, 2.0, 1.0)
    asked = np.array(drive_of(space, make("guided", space, measured=[elsewhere]), times, FIRST))
    assert a[asked[0]] == 3
    assert (a[asked[-4:]] > 10).all()
    assert times[asked].min() <= 1.03 * times.min()


def drive_of(space: Space, strategy: Strategy, times: np.ndarray, budget: int) -> list[int]:
    asked = []
    while len(asked) < min(budget, len(space)):
        (row,) = strategy.ask(1)
        asked.append(row)
        strategy.tell(row, float(times[row]))
    return asked


def test_failures_elsewhere_and_what_is_not_known_are_not_asked_first(space: Space) -> None:
    elsewhere = bowls(space)
    elsewhere[elsewhere.argmin()] = np.inf
    elsewhere[space.indices[:, 2] == 0] = np.nan
    asked = make("guided", space, measured=[elsewhere]).ask(FIRST)
    assert np.isfinite(elsewhere[asked]).all()


def test_a_search_without_a_valid_time_goes_on_among_what_others_know(space: Space) -> None:
    strategy = make("guided", space, measured=[bowls(space)])
    for _ in range(FIRST + 5):
        (row,) = strategy.ask(1)
        strategy.tell(row, None)
    assert strategy.ask(1)


def test_what_is_told_unasked_is_not_asked(space: Space) -> None:
    elsewhere = bowls(space)
    strategy = make("guided", space, measured=[elsewhere])
    best = int(elsewhere.argmin())
    strategy.tell(best, 1.0)
    assert strategy.has_taken(best)
    assert best not in strategy.ask(len(space))


def test_startup_says_how_many_are_chosen_by_what_others_know(space: Space) -> None:
    with pytest.raises(ConfigError, match="startup"):
        make("guided", space, options={"startup": 0}, measured=[bowls(space)])
    assert isinstance(make("guided", space, options={"startup": 3}, measured=[bowls(space)]), Transfer)
