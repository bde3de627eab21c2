"""What every search strategy must do. A new one passes by subclassing `SearchContract`:

class TestMine(SearchContract):
    def strategy(self, space, seed=0):
        return Mine(space, seed)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from sweeper.expressions import Value, parse
from sweeper.model import ParamSpec
from sweeper.search.base import Strategy
from sweeper.space import Space, build_space


def space_of(constraints: Sequence[str] = (), **levels: Sequence[Value]) -> Space:
    """A space over the given levels, in the order of the keywords."""
    params = [ParamSpec(name, tuple(values), values[0]) for name, values in levels.items()]
    return build_space(params, [parse(text) for text in constraints], {})


def bowl(space: Space, row: int) -> float:
    """A time with one best point, in the middle of every parameter."""
    middle = np.array([len(levels) - 1 for levels in space.levels]) / 2
    return 1.0 + float(((space.indices[row] - middle) ** 2).sum())


def register_tiled() -> Space:
    """Tiles of a block and of a thread; many combinations break the limits on threads and shared memory."""
    return space_of(
        [
            "bm % tm == 0 and bn % tn == 0",
            "(bm // tm) * (bn // tn) <= 1024",
            "(bm // tm) * (bn // tn) >= 32",
            "4 * bk * (bm + bn) <= 49152",
        ],
        bm=[16, 32, 64, 128, 256],
        bn=[16, 32, 64, 128, 256],
        bk=[8, 16, 32, 64],
        tm=[1, 2, 4, 8],
        tn=[1, 2, 4, 8],
    )


def drive(space: Space, strategy: Strategy, budget: int, *, ahead: int = 1) -> list[int]:
    """Ask `ahead` rows before the first of them is told, as the loop does; the rows in asked order."""
    asked: list[int] = []
    waiting: list[int] = []
    while True:
        room = min(ahead - len(waiting), budget - len(asked))
        given = strategy.ask(room) if room > 0 else []
        asked += given
        waiting += given
        if not waiting:
            return asked
        row = waiting.pop(0)
        strategy.tell(row, bowl(space, row))


class SearchContract:
    """Subclass it, and define `strategy`; set `seeded` to False where the seed makes no difference."""

    seeded = True

    def strategy(self, space: Space, seed: int = 0) -> Strategy:
        raise NotImplementedError

    def test_no_row_comes_twice_and_all_are_rows_of_the_space(self) -> None:
        space = register_tiled()
        asked = drive(space, self.strategy(space), 60)
        assert len(set(asked)) == 60
        assert all(space.why_infeasible(space.point(row)) is None for row in asked)
        assert all(type(row) is int for row in asked)

    def test_a_budget_above_the_size_of_the_space_ends_with_every_point_asked_once(self) -> None:
        space = space_of(bm=[16, 32, 64, 128], bn=[16, 32, 64, 128])
        assert sorted(drive(space, self.strategy(space), 40)) == list(range(16))

    def test_an_exhausted_space_gives_no_rows_however_often_it_is_asked(self) -> None:
        space = space_of(bm=[16, 32, 64])
        strategy = self.strategy(space)
        assert len(strategy.ask(5)) == 3
        assert strategy.ask(1) == []
        assert strategy.ask(0) == []
        strategy.tell(0, 1.0)
        assert strategy.ask(1) == []

    def test_a_budget_is_spent_on_feasible_points_only(self) -> None:
        space = register_tiled()
        assert len(space) < space.product_size
        assert len(drive(space, self.strategy(space), 50)) == 50

    @pytest.mark.parametrize(
        "levels", [{"bm": [32]}, {"bm": [16, 32]}, {"bm": [32], "bn": [16, 32], "v": ["a"]}]
    )
    def test_parameters_of_one_or_two_levels_are_fine(self, levels: dict[str, list[Value]]) -> None:
        space = space_of(**levels)
        assert sorted(drive(space, self.strategy(space), 20)) == list(range(len(space)))

    def test_a_space_without_parameters_has_one_point(self) -> None:
        space = space_of()
        assert drive(space, self.strategy(space), 5) == [0]

    def test_levels_may_be_text_fractions_or_truth_values(self) -> None:
        space = space_of(layout=["row", "column"], alpha=[0.5, 1.0, 2.0], padded=[False, True])
        assert sorted(drive(space, self.strategy(space), 99)) == list(range(12))

    @pytest.mark.parametrize("ahead", [1, 4])
    def test_the_same_seed_gives_the_same_rows(self, ahead: int) -> None:
        space = register_tiled()
        first, second = (drive(space, self.strategy(space, 7), 40, ahead=ahead) for _ in range(2))
        assert first == second

    def test_an_independent_order_is_the_same_however_far_ahead_it_is_asked(self) -> None:
        space = register_tiled()
        if self.strategy(space).independent:
            orders = [drive(space, self.strategy(space), 40, ahead=ahead) for ahead in (1, 16, 40)]
            assert orders[0] == orders[1] == orders[2]

    def test_another_seed_gives_other_rows(self) -> None:
        space = register_tiled()
        first, second = (drive(space, self.strategy(space, seed), 10) for seed in (1, 2))
        assert (first != second) == self.seeded

    def test_rows_of_a_batch_are_distinct_while_none_is_told(self) -> None:
        space = register_tiled()
        strategy = self.strategy(space)
        drive(space, strategy, 30)
        assert len(set(strategy.ask(20))) == 20

    def test_rows_may_be_told_in_another_order_than_asked(self) -> None:
        space = register_tiled()
        strategy = self.strategy(space)
        rows = strategy.ask(12)
        for row in reversed(rows):
            strategy.tell(row, bowl(space, row))
        assert not set(strategy.ask(12)) & set(rows)

    def test_when_every_configuration_fails_the_search_still_ends_normally(self) -> None:
        space = space_of(bm=[16, 32, 64, 128], bn=[16, 32, 64, 128])
        strategy = self.strategy(space)
        seen = []
        while rows := strategy.ask(3):
            seen += rows
            for row in rows:
                strategy.tell(row, None)
        assert sorted(seen) == list(range(16))

    def test_a_failed_configuration_is_not_proposed_again(self) -> None:
        space = register_tiled()
        strategy = self.strategy(space)
        asked = []
        for number in range(60):
            (row,) = strategy.ask(1)
            asked.append(row)
            strategy.tell(row, None if number % 3 == 0 else bowl(space, row))
        assert len(set(asked)) == 60

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_a_value_that_cannot_rank_is_refused(self, value: float) -> None:
        space = space_of(bm=[16, 32])
        strategy = self.strategy(space)
        (row,) = strategy.ask(1)
        with pytest.raises(ValueError, match="cannot rank"):
            strategy.tell(row, value)
        strategy.tell(row, 1.0)

    @pytest.mark.parametrize("row", [-1, 2])
    def test_a_row_outside_the_space_is_refused(self, row: int) -> None:
        strategy = self.strategy(space_of(bm=[16, 32]))
        with pytest.raises(ValueError, match="outside the space"):
            strategy.tell(row, 1.0)

    def test_a_row_told_twice_is_refused(self) -> None:
        strategy = self.strategy(space_of(bm=[16, 32]))
        strategy.tell(1, 1.0)
        with pytest.raises(ValueError, match="told before"):
            strategy.tell(1, 1.0)

    def test_a_negative_count_is_refused(self) -> None:
        with pytest.raises(ValueError, match="-1"):
            self.strategy(space_of(bm=[16, 32])).ask(-1)

    def test_stored_trials_can_be_told_first_and_are_not_asked(self) -> None:
        space = register_tiled()
        strategy = self.strategy(space)
        stored = list(range(0, 40, 2))
        for row in stored:
            strategy.tell(row, None if row % 8 == 0 else bowl(space, row))
        assert not set(drive(space, strategy, 40)) & set(stored)

    def test_a_second_search_from_the_first_ones_trials_asks_only_for_others(self) -> None:
        space = register_tiled()
        first = drive(space, self.strategy(space, 1), 15)
        again = self.strategy(space, 1)
        for row in first:
            again.tell(row, bowl(space, row))
        second = drive(space, again, 15)
        assert len(set(first) | set(second)) == 30

    def test_what_may_be_asked_next_is_open_and_saying_so_changes_nothing(self) -> None:
        space = register_tiled()
        quiet, telling = self.strategy(space, 3), self.strategy(space, 3)
        for count in (0, 1, 5, 9, 5, 2, 40, 3) * 3:
            likely = telling.likely(count)
            assert len(likely) <= count
            assert len(set(likely)) == len(likely)
            assert not any(telling.has_taken(row) for row in likely)
            rows = telling.ask(2)
            assert rows == quiet.ask(2)
            for row in rows:
                quiet.tell(row, bowl(space, row))
                telling.tell(row, bowl(space, row))

    def test_two_searches_do_not_disturb_each_other(self) -> None:
        space = register_tiled()
        alone = drive(space, self.strategy(space, 3), 20)
        one, other = self.strategy(space, 3), self.strategy(space, 4)
        together = []
        for _ in range(20):
            other.tell(other.ask(1)[0], 1.0)
            (row,) = one.ask(1)
            together.append(row)
            one.tell(row, bowl(space, row))
        assert together == alone
