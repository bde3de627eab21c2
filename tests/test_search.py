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
from sweeper.search.gaussian_process import Metric, Posterior, fitted  # noqa: E402
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


class TestBayes(Named):
    name = "bayes"


class TestGuided(Named):
    name = "guided"


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
        ("bayes", {"startup": 0}, "startup = 0"),
        ("guided", {"startup": 0}, "startup = 0"),
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


@pytest.mark.parametrize("name", ["tpe", "bayes", "guided"])
def test_a_model_guided_search_finds_a_better_point_than_random_search_does(name: str) -> None:
    space = space_of(a=list(range(8)), b=list(range(8)), c=list(range(8)), d=list(range(8)))

    def found(name: str) -> float:
        bests = [
            min(bowl(space, row) for row in drive(space, make(name, space, seed), 60)) for seed in range(8)
        ]
        return float(np.median(bests))

    assert found(name) < found("random")


@pytest.mark.parametrize("name", ["tpe", "tpe_univariate", "nsgaii", "bayes", "guided"])
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


@pytest.mark.parametrize("name", ["tpe", "bayes", "guided"])
def test_configurations_that_fail_teach_a_search_to_keep_away_from_them(name: str) -> None:
    outcomes = [failures_and_best(name, seed) for seed in range(6)]
    by_chance = [failures_and_best("random", seed) for seed in range(6)]
    assert sum(n for n, _ in outcomes) < 0.6 * sum(n for n, _ in by_chance)
    assert sum(best for _, best in outcomes) < sum(best for _, best in by_chance)


@pytest.mark.parametrize("name", ["tpe", "nsgaii", "bayes", "guided"])
def test_a_thousand_failures_in_a_row_do_not_stop_the_search(name: str) -> None:
    space = space_of(**{letter: list(range(10)) for letter in "abcd"})
    strategy = make(name, space, 0)
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


# The model of the Bayesian search


def test_the_growing_posterior_is_that_of_the_formula() -> None:
    space = space_of(a=list(range(7)), b=["x", "y", "z"], c=[1, 2, 4])
    metric = Metric([7, 3, 3], [True, False, True], np.array([0.5, 2.0, 1.0]))
    rows, targets = [3, 40, 17, 60, 5], np.array([0.5, -1.0, 2.0, 0.0, 1.0])
    posterior = Posterior(metric, space.indices)
    for row in rows:
        posterior.observe(space.indices[row])
    mean, _ = posterior.mean(targets)

    def covariance(left: Any, right: Any) -> Any:
        return np.array([metric.covariance(left, point) for point in right]).T

    seen = space.indices[rows]
    inverse = np.linalg.inv(covariance(seen, seen) + 0.01 * np.eye(5))
    cross = covariance(space.indices, seen)
    assert np.allclose(mean, cross @ inverse @ targets, atol=1e-4)
    assert np.allclose(posterior.variance, 1 - np.sum(cross @ inverse * cross, axis=1), atol=1e-4)


def test_a_point_that_is_being_measured_does_not_move_the_mean_but_settles_its_surroundings() -> None:
    space = space_of(a=list(range(20)))
    posterior = Posterior(Metric([20], [True]), space.indices)
    for row in (2, 15):
        posterior.observe(space.indices[row])
    before, _ = posterior.mean(np.array([1.0, -1.0]))
    variance = posterior.variance.copy()
    posterior.observe(space.indices[8])
    after, _ = posterior.mean(np.array([1.0, -1.0, np.nan]))
    assert np.allclose(before, after, atol=1e-5)
    assert posterior.variance[8] < 0.1 * variance[8]


def test_the_fitted_scales_tell_which_parameter_matters() -> None:
    space = space_of(a=list(range(10)), b=list(range(10)))
    rows = np.random.default_rng(0).choice(100, 40, replace=False)
    points = space.indices[rows]
    targets = np.sin(points[:, 0] * 0.9)
    fit = fitted(Metric([10, 10], [True, True]), points, targets)
    assert fit.scales[0] < 0.5 * fit.scales[1]


def test_times_that_are_all_equal_or_not_positive_are_searched_too() -> None:
    space = space_of(a=list(range(8)), b=list(range(8)))
    for value in (1.0, 0.0, -3.0):
        strategy = make("bayes", space, 0)
        rows = []
        for _ in range(30):
            (row,) = strategy.ask(1)
            rows.append(row)
            strategy.tell(row, value)
        assert len(set(rows)) == 30


def test_a_space_too_large_to_model_whole_is_searched_around_its_best_points() -> None:
    space = space_of(**{letter: list(range(20)) for letter in "abcd"})
    assert len(space) == 160_000
    bests = {
        name: min(bowl(space, row) for row in drive(space, make(name, space, 0), 60, ahead=4))
        for name in ("bayes", "random")
    }
    assert bests["bayes"] < bests["random"] / 2


def test_many_stored_trials_are_thinned_and_the_search_goes_on() -> None:
    space = space_of(**{letter: list(range(8)) for letter in "abcd"})
    strategy = make("bayes", space, 0)
    for row in range(0, 4000, 2):
        strategy.tell(row, bowl(space, row))
    asked = drive(space, strategy, 10)
    assert min(bowl(space, row) for row in asked) <= min(bowl(space, row) for row in range(0, 4000, 2))


def test_rows_told_from_elsewhere_in_the_middle_of_a_search_are_learned_and_not_asked() -> None:
    space = space_of(a=list(range(10)), b=list(range(10)))
    strategy = make("bayes", space, 0)
    first = drive(space, strategy, 20)
    others = [row for row in range(100) if row not in first][:30]
    for row in others:
        strategy.tell(row, bowl(space, row))
    assert not set(drive(space, strategy, 30)) & set(others)


def test_when_every_candidate_was_asked_the_rest_of_a_large_space_comes_at_random(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sweeper.search import bayes

    monkeypatch.setattr(bayes, "_MAX_CANDIDATES", 5)
    monkeypatch.setattr(bayes, "_CENTRES", 1)
    space = space_of(a=list(range(6)), b=list(range(6)))
    assert sorted(drive(space, make("bayes", space, 0), 40)) == list(range(36))


def test_the_orders_that_no_result_changes_say_so() -> None:
    space = register_tiled()
    independent = {n for n in ("grid", "random", "bayes", "tpe", "guided") if make(n, space).independent}
    assert independent == {"grid", "random"}
