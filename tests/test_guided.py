"""The guided search: what it believes, what it begins with, and who else may use it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

pytest.register_assert_rewrite("contract.search_contract")

from contract.search_contract import bowl, drive, register_tiled, space_of  # noqa: E402
from specs import gemm_spec, saxpy_spec  # noqa: E402

from sweeper.cli.estimates import estimates, recorded_estimates  # noqa: E402
from sweeper.device import DeviceIdentity, target  # noqa: E402
from sweeper.errors import ConfigError  # noqa: E402
from sweeper.model import KernelSpec, Role, Stage, Status  # noqa: E402
from sweeper.problem import resolve  # noqa: E402
from sweeper.recording import Recorded, write_compact  # noqa: E402
from sweeper.resources import resources  # noqa: E402
from sweeper.resources.columns import predicted_times  # noqa: E402
from sweeper.resources.feasible import feasible_space  # noqa: E402
from sweeper.search import make  # noqa: E402
from sweeper.search.complete import completed  # noqa: E402
from sweeper.search.feasible_sampler import FeasibleSampler  # noqa: E402
from sweeper.search.gaussian_process import Posterior  # noqa: E402
from sweeper.search.guided import Guided, estimate_levels  # noqa: E402
from sweeper.search.relevance import Beliefs, Groups, Relevance, fitted_relevance  # noqa: E402
from sweeper.search.spread import Spread  # noqa: E402

H200 = target("h200")
BELIEFS = Beliefs(length=0.6, logit=1.0)
DEVICE = DeviceIdentity("NVIDIA H200", uuid="GPU-1", driver="580")


# The covariance


def test_the_covariance_is_the_product_of_the_formula() -> None:
    space = space_of(a=list(range(7)), b=["x", "y", "z"], c=[1, 2, 4])
    groups = Groups([7, 3, 3], [True, False, True])
    covariance = Relevance(groups, np.array([0.5, 1.0, 2.0]), np.array([0.9, 0.5, 0.1]), 0.01)
    codes = groups.codes(space.indices)
    found = np.array([covariance.covariance(codes, code) for code in codes])
    assert np.allclose(found, covariance.gram(space.indices), atol=1e-6)
    assert np.allclose(np.diag(found), 1)

    def matern(r: float) -> float:
        s = np.sqrt(5) * r
        return float((1 + s + s * s / 3) * np.exp(-s))

    one, other = space.indices[0], space.indices[-1]
    steps = [abs(int(one[0] - other[0])) / 6 / 0.5, 1.0, abs(int(one[2] - other[2])) / 2 / 2.0]
    factors = [1 - s + s * matern(r) for s, r in zip([0.9, 0.5, 0.1], steps, strict=True)]
    assert found[0, -1] == pytest.approx(np.prod(factors), rel=1e-5)


def test_many_parameters_are_numbered_in_groups_and_the_product_is_the_same() -> None:
    counts = [8] * 7
    groups = Groups(counts, [True] * 7)
    assert len(groups.members) > 1
    assert sorted(itertools.chain(*groups.members)) == list(range(7))
    points = np.random.default_rng(0).integers(0, 8, (40, 7))
    covariance = Relevance.believed(groups, BELIEFS)
    codes = groups.codes(points)
    found = np.array([covariance.covariance(codes, code) for code in codes])
    assert np.allclose(found, covariance.gram(points), atol=1e-5)


def test_observing_all_at_once_is_observing_one_by_one() -> None:
    space = register_tiled()
    groups = Groups([len(levels) for levels in space.levels], [True] * len(space.levels))
    covariance, codes = Relevance.believed(groups, BELIEFS), groups.codes(space.indices)
    rows = np.random.default_rng(0).choice(len(space), 25, replace=False)
    targets = np.random.default_rng(1).normal(size=25)
    at_once, singly = Posterior(covariance, codes), Posterior(covariance, codes)
    at_once.observe_all(codes[rows[:20]])
    for code in codes[rows[:20]]:
        singly.observe(code)
    for posterior in (at_once, singly):
        for code in codes[rows[20:]]:
            posterior.observe(code)
    assert np.allclose(at_once.mean(targets)[0], singly.mean(targets)[0], atol=1e-3)
    assert np.allclose(at_once.variance, singly.variance, atol=1e-4)
    with pytest.raises(ValueError, match="observed before"):
        at_once.observe_all(codes[:2])


def test_the_fitted_shares_tell_which_parameter_matters() -> None:
    space = space_of(a=list(range(10)), b=list(range(10)))
    rows = np.random.default_rng(0).choice(100, 40, replace=False)
    points = space.indices[rows]
    targets = np.sin(points[:, 0] * 0.9)
    covariance = Relevance.believed(Groups([10, 10], [True, True]), BELIEFS)
    for _ in range(8):
        covariance = fitted_relevance(covariance, points, targets, BELIEFS, np.random.default_rng(0))
    assert covariance.shares[0] > 2 * covariance.shares[1]


# What it begins with


def apart(space: Any, rows: Any) -> float:
    """The least number of parameters in which two of `rows` differ."""
    points = space.indices[np.asarray(rows)]
    return float(min((one != other).sum() for one, other in itertools.combinations(points, 2)))


@pytest.mark.parametrize("seed", range(5))
def test_the_first_configurations_are_far_from_each_other(seed: int) -> None:
    space = register_tiled()
    first = Guided(space, seed).ask(8)
    drawn = [apart(space, space.sample(np.random.default_rng(other), 8)) for other in range(50)]
    assert apart(space, first) > np.mean(drawn)
    assert all(len(set(levels)) >= 3 for levels in space.indices[first].T)


def test_what_was_told_before_is_kept_away_from() -> None:
    space = space_of(a=list(range(9)), b=["x", "y"])
    strategy = Guided(space, 0)
    corner = [row for row in range(len(space)) if space.point(row).params["a"] <= 2]
    for row in corner:
        strategy.tell(row, 1.0)
    assert space.point(strategy.ask(1)[0]).params["a"] >= 3
    spread = Spread(space, np.random.default_rng(0))
    for row in corner:
        spread.add(row)
    farthest = spread.draw_unless(np.zeros(len(space), dtype=bool))
    assert farthest is not None
    assert space.point(farthest).params["a"] == 8


def test_a_spread_ends_when_all_points_are_taken() -> None:
    space = space_of(a=[1, 2, 3])
    spread = Spread(space, np.random.default_rng(0))
    taken = np.zeros(3, dtype=bool)
    found = []
    while (row := spread.draw_unless(taken)) is not None:
        found.append(row)
        taken[row] = True
        spread.add(row)
    assert sorted(found) == [0, 1, 2]
    assert space_of().indices.shape == (1, 0)
    assert Spread(space_of(), np.random.default_rng(0)).draw_unless(np.zeros(1, dtype=bool)) == 0


# Estimates


def test_the_first_configurations_are_the_best_by_each_estimate_and_distant_ones() -> None:
    space = space_of(a=list(range(10)), b=list(range(10)))
    one = np.array([1.0 + row for row in range(100)])
    other = one[::-1].copy()
    strategy = Guided(space, 0, {"startup": 8}, estimates=[one, other])
    assert strategy.ask(8) == [0, 99, 1, 98, 2, 97, 3, 96]
    alone = Guided(space, 0, {"startup": 8}, estimates=[one])
    first = alone.ask(8)
    assert first[:4] == [0, 1, 2, 3]
    assert len(set(first)) == 8


def test_a_right_estimate_makes_a_search_shorter_and_a_wrong_one_does_not_ruin_it() -> None:
    space = space_of(**{name: list(range(8)) for name in "abcd"})
    times = np.array([bowl(space, row) for row in range(len(space))])
    rng = np.random.default_rng(0)

    def best(given: list[Any], budget: int) -> float:
        found = [
            min(times[row] for row in drive(space, make("guided", space, seed, estimates=given), budget))
            for seed in range(5)
        ]
        return float(np.median(found))

    rough = times * rng.lognormal(0, 0.5, len(times))
    assert best([rough], 5) < best([], 5)
    assert best([-times + times.max() + 1], 60) <= 1.5 * best([], 60)


def test_an_estimate_has_a_time_for_every_row() -> None:
    with pytest.raises(ValueError, match="rows for a space of 4"):
        Guided(space_of(a=[1, 2, 3, 4]), estimates=[np.ones(3)])


def test_the_levels_of_an_estimate_are_relative_speeds() -> None:
    levels = estimate_levels(np.array([1.0, 2.0, 100.0, np.nan, np.inf]))
    assert levels.tolist() == [15, 7, 0, 0, 0]
    assert estimate_levels(np.full(3, np.nan)).tolist() == [0, 0, 0]


def test_what_is_known_of_some_points_is_filled_in_for_all() -> None:
    space = space_of(a=list(range(12)), b=list(range(12)))
    times = np.array([bowl(space, row) for row in range(len(space))])
    known = np.random.default_rng(0).choice(len(space), 50, replace=False)
    some = np.full(len(space), np.nan)
    some[known] = times[known]
    full = completed(space, some)
    assert np.isfinite(full).all()
    assert (full[known] == times[known]).all()
    rest = np.setdiff1d(np.arange(len(space)), known)
    ranks = [np.argsort(np.argsort(values[rest])) for values in (full, times)]
    assert np.corrcoef(ranks)[0, 1] > 0.8
    assert full[rest].min() >= times[known].min()


@pytest.mark.parametrize("ranking", [False, True])
@pytest.mark.parametrize("spec", [gemm_spec(), saxpy_spec()], ids=["gemm", "saxpy"])
def test_the_static_model_over_a_whole_space_is_that_of_each_point(spec: KernelSpec, ranking: bool) -> None:
    dims = {"M": 1000, "N": 900, "K": 77} if "M" in spec.dims else {"N": 100_000}
    space = feasible_space(spec, dims, H200)
    problem = resolve(spec, dims, spec.default_point, seed=0)
    found = predicted_times(
        spec, space.names, space.levels, space.indices, dims, H200,
        flops=problem.flops, bytes=problem.bytes, ranking=ranking,
    )  # fmt: skip
    for row in range(0, len(space), max(1, len(space) // 50)):
        figures = resources(spec, space.point(row), dims, H200, flops=problem.flops, bytes=problem.bytes)
        expected = figures.predicted_ms
        if expected is None:
            assert np.isnan(found[row])
        elif ranking:
            assert found[row] >= expected * (1 - 1e-9)
        else:
            assert found[row] == pytest.approx(expected, rel=1e-9)


# Transfer


def recorded(
    spec: KernelSpec, point: dict[str, Any], dims: dict[str, int], time: float, device: str
) -> Recorded:
    return Recorded(
        Role.CANDIDATE, spec.name, "float32", dims, point, Status.OK, Stage.DONE, "", (time,), "measured", "events",
        "cold", device, "GPU-9", "580",
    )  # fmt: skip


def test_tables_of_nearer_conditions_are_believed_first(tmp_path: Path) -> None:
    spec, dims = gemm_spec(), {"M": 512, "N": 512, "K": 512}
    space = feasible_space(spec, dims, H200)
    for name, size, device in (
        ("far", 4096, DEVICE.name),
        ("near", 1024, DEVICE.name),
        ("other", 512, "A100"),
    ):
        rows = [
            recorded(
                spec, space.point(row).params, {"M": size, "N": size, "K": size}, 1.0 + row + size, device
            )
            for row in range(min(len(space), 30))
        ]
        write_compact(tmp_path / f"{name}.gz", rows)
    paths = [str(tmp_path / f"{name}.gz") for name in ("far", "other", "near")]
    found = estimates(spec, space, dims, H200, DEVICE, paths)
    assert [float(np.nanmin(each)) for each in found.measured] == [1025.0, 513.0, 4097.0]
    assert len(found.static) == 1


def test_a_table_that_says_nothing_of_the_kernel_is_refused(tmp_path: Path) -> None:
    spec, dims = gemm_spec(), {"M": 512, "N": 512, "K": 512}
    space = feasible_space(spec, dims, H200)
    write_compact(tmp_path / "a.gz", [recorded(spec, {"other": 1}, dims, 1.0, "H200")])
    with pytest.raises(ConfigError, match="fewer than 4 configurations"):
        recorded_estimates(spec, space, dims, DEVICE, tmp_path / "a.gz")


# For anybody's study


POINTS = [
    {"a": a, "b": b, "c": c} for a in (1, 2, 4, 8) for b in (1, 2, 4, 8) for c in ("x", "y") if a * b <= 16
]


def value_of(trial: optuna.Trial) -> float:
    a = trial.suggest_int("a", 1, 8)
    b = trial.suggest_categorical("b", [1, 2, 4, 8])
    c = trial.suggest_categorical("c", ["x", "y"])
    if a == 8:
        raise optuna.TrialPruned
    return abs(a - 4) + abs(b - 4) + (c == "x")


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.mark.parametrize("strategy", ["guided", "bayes", "random"])
def test_a_study_gets_each_feasible_point_once_and_then_ends(strategy: str) -> None:
    study = optuna.create_study(sampler=FeasibleSampler.of_points(POINTS, seed=1, strategy=strategy))
    study.optimize(value_of, n_trials=100)
    asked = [tuple(sorted(trial.params.items())) for trial in study.trials if trial.params]
    assert sorted(asked) == sorted(tuple(sorted(point.items())) for point in POINTS)
    assert study.best_value == 0.0


def test_a_study_that_maximises_is_led_upwards() -> None:
    space = space_of(**{name: list(range(8)) for name in "abcd"})

    def speed(trial: optuna.Trial) -> float:
        point = [trial.suggest_int(name, 0, 7) for name in "abcd"]
        return 1000 - sum((x - 5) ** 2 for x in point)

    study = optuna.create_study(direction="maximize", sampler=FeasibleSampler(space, seed=0))
    study.optimize(speed, n_trials=60)
    assert study.best_value > 995


def test_one_seed_gives_one_order_in_a_study_too() -> None:
    def run() -> list[dict[str, Any]]:
        study = optuna.create_study(sampler=FeasibleSampler.of_points(POINTS, seed=3))
        study.optimize(value_of, n_trials=15)
        return [trial.params for trial in study.trials]

    assert run() == run()


def test_trials_that_the_study_had_before_are_known_and_not_asked_again() -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for point in POINTS[:10]:
        study.enqueue_trial(point)
    study.optimize(value_of, n_trials=10)
    study.sampler = FeasibleSampler.of_points(POINTS, seed=0)
    study.optimize(value_of, n_trials=len(POINTS))
    asked = [tuple(sorted(trial.params.items())) for trial in study.trials if trial.params]
    assert len(asked) == len(set(asked)) == len(POINTS)


def test_a_range_that_does_not_hold_a_level_is_refused() -> None:
    study = optuna.create_study(sampler=FeasibleSampler.of_points([{"a": 64}]))
    with pytest.raises(ConfigError, match="a = 64 is not in IntDistribution"):
        study.optimize(lambda trial: float(trial.suggest_int("a", 1, 8)), n_trials=1)
    study = optuna.create_study(sampler=FeasibleSampler.of_points([{"a": 64}]))
    with pytest.raises(ConfigError, match="no parameter 'b'"):
        study.optimize(lambda trial: float(trial.suggest_int("b", 1, 8)), n_trials=1)


def test_points_of_a_sampler_have_the_same_parameters() -> None:
    with pytest.raises(ConfigError, match="at least one point"):
        FeasibleSampler.of_points([])
    with pytest.raises(ConfigError, match="other parameters than the first"):
        FeasibleSampler.of_points([{"a": 1}, {"b": 1}])
