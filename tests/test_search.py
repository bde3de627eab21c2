"""Strategies: each one's own behaviour beside the contract that all of them pass."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest

pytest.register_assert_rewrite("contract.search_contract")

from contract.search_contract import SearchContract, bowl, drive, register_tiled, space_of  # noqa: E402

from sweeper.errors import ConfigError, SetupError  # noqa: E402
from sweeper.search import REGISTRY, make  # noqa: E402
from sweeper.search.base import Strategy  # noqa: E402
from sweeper.search.random import Shuffle  # noqa: E402
from sweeper.space import Space  # noqa: E402

NEEDS = {"gp": ("torch", "scipy"), "cmaes": ("cmaes",), "qmc": ("scipy",)}


def installed(name: str) -> bool:
    return all(importlib.util.find_spec(package) for package in NEEDS.get(name, ()))


class Named(SearchContract):
    name = ""

    def strategy(self, space: Space, seed: int = 0) -> Strategy:
        if not installed(self.name):
            pytest.skip(f"{self.name} needs {' and '.join(NEEDS[self.name])}")
        return make(self.name, space, seed)


class TestGrid(Named):
    name = "grid"
    seeded = False


class TestRandom(Named):
    name = "random"


class TestTpe(Named):
    name = "tpe"


class TestUnivariateTpe(Named):
    name = "tpe_univariate"


class TestGp(Named):
    name = "gp"


class TestCmaEs(Named):
    name = "cmaes"


class TestNsgaII(Named):
    name = "nsgaii"


class TestQmc(Named):
    name = "qmc"


def test_an_unknown_name_is_refused_with_the_nearest_and_all_names() -> None:
    with pytest.raises(ConfigError, match="did you mean 'random'") as caught:
        make("randm", space_of(bm=[16]))
    assert all(name in str(caught.value) for name in REGISTRY)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("grid", {"startup": 3}, "grid has no such option"),
        ("tpe", {"start_up": 3}, "did you mean 'startup'"),
        ("tpe", {"startup": 0}, "startup = 0 is not a whole number of at least 1"),
        ("tpe", {"candidates": 2.5}, "candidates = 2.5"),
        ("tpe", {"candidates": True}, "candidates = True"),
        ("nsgaii", {"startup": 1}, "at least 2"),
        ("qmc", {"sequence": "sobl"}, "'sobl' is none of sobol, halton"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_asked(
    name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make(name, space_of(bm=[16]), 0, options)


@pytest.mark.parametrize("seed", [-1, 1.5, True])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(ConfigError, match="seed"):
        make("random", space_of(bm=[16]), seed)


@pytest.mark.parametrize("seed", [0, 2**32, 2**70])
def test_a_seed_may_be_of_any_size(seed: int) -> None:
    assert drive(space_of(bm=[16, 32]), make("tpe", space_of(bm=[16, 32]), seed), 2)


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_a_missing_package_is_named_with_the_way_to_get_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    with pytest.raises(SetupError, match="needs the package") as caught:
        make(name, space_of(bm=[16, 32]))
    assert f"pip install {NEEDS[name][0]}" in str(caught.value)


def test_optuna_is_not_imported_by_the_searches_that_do_without_it() -> None:
    code = (
        "import sys, sweeper.search; from sweeper.search import grid, random;"
        "sys.exit('optuna' in sys.modules or 'pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_grid_goes_in_the_order_of_the_space() -> None:
    space = register_tiled()
    strategy = make("grid", space)
    strategy.tell(1, 1.0)
    assert strategy.ask(4) == [0, 2, 3, 4]


def test_grid_and_random_take_a_space_of_millions_of_points() -> None:
    space = space_of(**{name: list(range(32)) for name in "abcd"})
    assert len(space) == 32**4
    for name in ("grid", "random"):
        assert len(set(make(name, space).ask(1000))) == 1000


def test_random_reaches_every_point_equally_often() -> None:
    space = space_of(bm=list(range(10)))
    first = Counter(make("random", space, seed).ask(1)[0] for seed in range(2000))
    # 200 each are expected with a deviation of 13.4; five deviations on both sides.
    assert min(first.values()) > 133
    assert max(first.values()) < 267


def test_a_resumed_random_search_goes_on_where_the_first_one_stopped() -> None:
    space = register_tiled()
    whole = make("random", space, 1).ask(10)
    resumed = make("random", space, 1)
    for row in whole[:5]:
        resumed.tell(row, 1.0)
    assert resumed.ask(5) == whole[5:]


def test_a_shuffle_is_a_permutation() -> None:
    shuffle = Shuffle(100, np.random.default_rng(0))
    assert sorted(shuffle.draw() for _ in range(100)) == list(range(100))
    with pytest.raises(IndexError):
        shuffle.draw()


def test_two_hundred_trials_of_tpe_are_two_hundred_configurations() -> None:
    space = space_of(a=list(range(6)), b=list(range(6)), c=list(range(6)), d=list(range(6)))
    assert len(space) == 1296
    assert len(set(drive(space, make("tpe", space, 0), 200))) == 200


def test_tpe_finds_a_better_point_than_random_search_does() -> None:
    space = space_of(a=list(range(8)), b=list(range(8)), c=list(range(8)), d=list(range(8)))

    def found(name: str) -> float:
        bests = [
            min(bowl(space, row) for row in drive(space, make(name, space, seed), 60)) for seed in range(8)
        ]
        return float(np.median(bests))

    assert found("tpe") < found("random")


@pytest.mark.parametrize("name", ["tpe", "tpe_univariate", "nsgaii"])
def test_what_a_batch_gives_does_not_depend_on_how_it_is_cut(name: str) -> None:
    space = register_tiled()
    whole, pieces = make(name, space, 5), make(name, space, 5)
    for strategy in (whole, pieces):
        for row in range(0, 60, 4):
            strategy.tell(row, bowl(space, row))
    assert whole.ask(6) == [row for _ in range(3) for row in pieces.ask(2)]


def test_the_first_configurations_of_a_resumed_search_are_not_the_old_ones_neighbours() -> None:
    space = space_of(**{name: list(range(10)) for name in "abcd"})
    first = drive(space, make("tpe", space, 1), 5)
    resumed = make("tpe", space, 1)
    for row in first:
        resumed.tell(row, bowl(space, row))
    distances = [
        int(np.abs(space.indices[a] - space.indices[b]).sum())
        for a, b in zip(drive(space, resumed, 5), first, strict=True)
    ]
    assert max(distances) > 4


def failing_third(space: Space, row: int) -> float | None:
    """Every configuration with a large first parameter fails; the best one lies just beside them."""
    a, *rest = space.indices[row].tolist()
    return None if a >= 6 else 1.0 + abs(a - 5) + sum((x - 4) ** 2 for x in rest)


def failures_and_best(name: str, seed: int) -> tuple[int, float]:
    space = space_of(**{name: list(range(9)) for name in "abcd"})
    strategy = make(name, space, seed)
    values = []
    for _ in range(60):
        (row,) = strategy.ask(1)
        values.append(failing_third(space, row))
        strategy.tell(row, values[-1])
    return values.count(None), min(v for v in values if v is not None)


def test_tpe_learns_to_keep_away_from_configurations_that_fail() -> None:
    outcomes = [failures_and_best("tpe", seed) for seed in range(6)]
    by_chance = [failures_and_best("random", seed) for seed in range(6)]
    assert sum(n for n, _ in outcomes) < 0.6 * sum(n for n, _ in by_chance)
    assert sum(best for _, best in outcomes) < sum(best for _, best in by_chance)


def test_a_thousand_failures_in_a_row_do_not_stop_the_search() -> None:
    space = space_of(**{name: list(range(10)) for name in "abcd"})
    strategy = make("tpe", space, 0)
    for _ in range(1000):
        strategy.tell(strategy.ask(1)[0], None)
    (row,) = strategy.ask(1)
    strategy.tell(row, 1.0)
    assert len(strategy.ask(3)) == 3


def test_optuna_says_nothing_on_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    space = register_tiled()
    drive(space, make("tpe", space), 15)
    drive(space, make("nsgaii", space), 15)
    assert capfd.readouterr() == ("", "")
