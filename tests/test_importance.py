"""What the analysis of importance finds where the answer is known."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importance_rig import SPACES, final, grid, logarithmic, table, trial

from sweeper.errors import ConfigError
from sweeper.expressions import parse
from sweeper.importance import Importance, Outcome, analyse, analyse_groups, analyse_results
from sweeper.importance.decomposition import alone_effects, pair_effects, total_effects
from sweeper.importance.ped_anova import top_shares
from sweeper.importance.region import of_space, of_trials
from sweeper.model import ParamSpec, Role
from sweeper.results import read_results
from sweeper.space import build_space
from sweeper.table import frame

SIGNS = (-1, 1)


def parameter(found: Importance, name: str) -> Any:
    return next(one for one in found.parameters if one.name == name)


def alone(found: Importance) -> dict[str, float]:
    return {one.name: one.alone.value for one in found.parameters if one.alone}


def total(found: Importance) -> dict[str, float]:
    return {one.name: one.total.value for one in found.parameters if one.total}


def pairs(found: Importance) -> dict[tuple[str, str], float]:
    return {(pair.first, pair.second): pair.share.value for pair in found.pairs}


# Known indices


def test_an_additive_function_has_its_sobol_indices_and_no_pairs() -> None:
    points = grid(a=range(4), b=range(4), c=range(4))
    found = analyse(table(points, logarithmic(lambda p: 3 * p["a"] + p["b"])))
    assert found.evaluator == "functional ANOVA"
    assert alone(found) == pytest.approx({"a": 0.9, "b": 0.1, "c": 0.0})
    assert total(found) == pytest.approx({"a": 0.9, "b": 0.1, "c": 0.0})
    assert max(pairs(found).values()) == pytest.approx(0.0, abs=1e-9)


def test_a_pure_interaction_is_all_in_its_pair() -> None:
    found = analyse(table(grid(a=SIGNS, b=SIGNS, c=(0, 1, 2)), logarithmic(lambda p: p["a"] * p["b"])))
    assert alone(found) == pytest.approx({"a": 0.0, "b": 0.0, "c": 0.0}, abs=1e-9)
    assert total(found) == pytest.approx({"a": 1.0, "b": 1.0, "c": 0.0})
    assert found.pairs[0].share.value == pytest.approx(1.0)
    assert {found.pairs[0].first, found.pairs[0].second} == {"a", "b"}


def test_main_effects_and_an_interaction_share_the_variance() -> None:
    """Of x + 2 y + 3 x y on signs the parts are 1, 4 and 9 of 14."""
    points = grid(x=SIGNS, y=SIGNS, z=("p", "q"))
    found = analyse(table(points, logarithmic(lambda p: p["x"] + 2 * p["y"] + 3 * p["x"] * p["y"])))
    assert alone(found) == pytest.approx({"x": 1 / 14, "y": 4 / 14, "z": 0.0}, abs=1e-9)
    assert total(found) == pytest.approx({"x": 10 / 14, "y": 13 / 14, "z": 0.0}, abs=1e-9)
    assert pairs(found)["x", "y"] == pytest.approx(9 / 14)
    assert [one.name for one in found.parameters] == ["y", "x", "z"]


def test_an_interaction_of_three_is_in_no_pair() -> None:
    points = grid(a=SIGNS, b=SIGNS, c=SIGNS)
    found = analyse(table(points, logarithmic(lambda p: p["a"] * p["b"] * p["c"])))
    assert total(found) == pytest.approx({"a": 1.0, "b": 1.0, "c": 1.0})
    assert max(pairs(found).values()) == pytest.approx(0.0, abs=1e-9)


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_shares_of_any_table_are_those_of_their_definitions(data: st.DataObject) -> None:
    """Whatever combinations are feasible: the fast sums against conditional means and least squares."""
    product = [tuple(point.values()) for point in grid(a=range(3), b=range(3), c=range(2))]
    kept = data.draw(st.lists(st.sampled_from(product), min_size=3, unique=True))
    numbers = st.floats(-3, 3).map(lambda v: round(v, 3))
    values = np.array(data.draw(st.lists(numbers, min_size=len(kept), max_size=len(kept))))
    codes, counts = np.array(kept), (3, 3, 2)
    if values.var() < 1e-6:
        return
    column = values[:, None]
    rows = pd.DataFrame(codes).assign(y=values)
    spread = values.var()
    for j in range(3):
        means = rows.groupby(j)["y"].transform("mean")
        assert alone_effects(codes, counts, column, sampled=False)[j, 0] == pytest.approx(
            means.var(ddof=0) / spread
        )
        others = [k for k in range(3) if k != j]
        within = rows["y"] - rows.groupby(others)["y"].transform("mean")
        assert total_effects(codes, values)[j] == pytest.approx((within**2).mean() / spread, abs=1e-9)
    for (j, k), found in pair_effects(codes, counts, column, sampled=False).items():
        ones = np.hstack([np.eye(counts[i])[codes[:, i]] for i in (j, k)])
        fitted = ones @ np.linalg.lstsq(ones, values, rcond=None)[0]
        joint = rows.groupby([j, k])["y"].transform("mean").to_numpy()
        expected = ((values - fitted) ** 2).mean() - ((values - joint) ** 2).mean()
        assert found[0] == pytest.approx(expected / spread, abs=1e-8)


# Constraints


def test_under_a_constraint_a_parameter_explains_what_depends_on_it() -> None:
    """Time depends on a alone, but b ≤ a tells of a: b explains some by itself, and nothing beyond a."""
    points = [p for p in grid(a=range(4), b=range(4)) if p["b"] <= p["a"]]
    found = analyse(table(points, logarithmic(lambda p: p["a"])), whole=True)
    assert alone(found)["a"] == pytest.approx(1.0)
    assert 0.2 < alone(found)["b"] < 0.8
    assert total(found)["b"] == pytest.approx(0.0, abs=1e-9)
    assert 0 < total(found)["a"] < 1
    assert pairs(found)["a", "b"] == pytest.approx(0.0, abs=1e-9)
    assert any("depend on each other" in note for note in found.notes)


def test_a_table_is_whole_where_every_combination_was_tried() -> None:
    points = grid(a=range(4), b=range(4))
    assert analyse(table(points, logarithmic(lambda p: p["a"]))).whole
    partly = analyse(table(points[:-1], logarithmic(lambda p: p["a"])))
    assert not partly.whole
    assert partly.evaluator == "fANOVA"
    assert analyse(table(points[:-1], logarithmic(lambda p: p["a"])), whole=True).whole


def test_a_table_is_whole_where_it_has_all_of_the_space() -> None:
    params = [ParamSpec("a", (8, 2, 4), 2), ParamSpec("b", (1, 2, 4, 8), 1)]
    space = build_space(params, [parse("b <= a")], {})
    points = [dict(space.point(row)) for row in range(len(space))]
    time = logarithmic(lambda p: p["a"] / p["b"])
    assert analyse(table(points, time), space=space).whole
    partly = analyse(table(points[1:], time), space=space)
    assert not partly.whole
    assert f"over the {len(space)} feasible configurations" in partly.how or len(points) - 1 < 10


def test_the_model_is_asked_of_nothing_that_two_parameters_forbid() -> None:
    rng = np.random.default_rng(0)
    points = np.array([p for p in np.ndindex(5, 5, 3) if p[1] <= p[0]])
    region = of_trials(points[rng.permutation(len(points))[:35]], (5, 5, 3), rng)
    for found in (region.points, *region.redrawn):
        assert (found[:, 1] <= found[:, 0]).all()
    assert len(np.unique(region.points, axis=0)) > 35
    changed = region.redrawn[2] != region.points[: len(region.redrawn[2])]
    assert changed[:, 2].any()
    assert not changed[:, :2].any()


def test_many_trials_keep_out_what_three_parameters_forbid_together() -> None:
    rng = np.random.default_rng(0)
    points = np.array([p for p in np.ndindex(6, 6, 6, 4) if p[0] + p[1] + p[2] <= 7])
    some = points[rng.permutation(len(points))[:300]]
    three = of_trials(some, (6, 6, 6, 4), rng).points
    two = of_trials(some[:150], (6, 6, 6, 4), rng).points
    assert (three[:, :3].sum(axis=1) <= 7).all()
    assert not (two[:, :3].sum(axis=1) <= 7).all()
    assert len(np.unique(three, axis=0)) > len(some)


def test_the_model_is_asked_of_the_points_of_a_space_where_it_is_known() -> None:
    space = build_space([ParamSpec(n, (1, 2, 4, 8), 1) for n in "abc"], [parse("a * b * c <= 32")], {})
    region = of_space(space, np.random.default_rng(0))
    feasible = set(map(tuple, space.indices.tolist()))
    for place, found in enumerate(region.redrawn):
        assert set(map(tuple, found.tolist())) <= feasible
        same = np.delete(found == region.points[: len(found)], place, axis=1)
        assert same.all()


# The model


@pytest.fixture(scope="module")
def sampled() -> Importance:
    """400 of 4096 configurations: three parameters as above, three that do nothing."""
    points = grid(x=SIGNS, y=SIGNS, z=range(4), u=range(4), v=("p", "q", "r", "s"), w=range(4))
    chosen = random.Random(1).sample(points, 400)  # noqa: S311
    return analyse(table(chosen, logarithmic(lambda p: p["x"] + 2 * p["y"] + 3 * p["x"] * p["y"])))


def test_a_forest_on_a_tenth_of_a_space_finds_its_sobol_indices(sampled: Importance) -> None:
    assert sampled.fit is not None
    assert sampled.fit > 0.95
    assert alone(sampled)["x"] == pytest.approx(1 / 14, abs=0.05)
    assert alone(sampled)["y"] == pytest.approx(4 / 14, abs=0.05)
    assert pairs(sampled)["x", "y"] == pytest.approx(9 / 14, abs=0.05)
    assert total(sampled)["y"] == pytest.approx(13 / 14, abs=0.05)


def test_what_does_nothing_is_told_from_what_does(sampled: Importance) -> None:
    for name in "zuvw":
        assert alone(sampled)[name] < 0.01
        assert total(sampled)[name] < 0.05
    assert all(share < 0.01 for pair, share in pairs(sampled).items() if pair != ("x", "y"))


def test_shares_of_a_model_have_intervals_and_those_of_a_whole_table_none(sampled: Importance) -> None:
    for one in sampled.parameters:
        for share in (one.alone, one.total, one.top):
            assert 0 <= share.low <= share.value <= share.high <= 1
    exact = analyse(table(grid(a=range(4), b=range(4)), logarithmic(lambda p: p["a"])))
    assert all(one.alone.low is None for one in exact.parameters)


def test_equal_tables_give_equal_findings() -> None:
    points = random.Random(0).sample(grid(a=range(4), b=range(4), c=range(4)), 40)  # noqa: S311
    made = table(points, logarithmic(lambda p: p["a"] + p["b"]))
    assert analyse(made) == analyse(made)


def test_a_poor_model_says_so() -> None:
    noise = random.Random(0)  # noqa: S311
    points = random.Random(1).sample(grid(a=range(8), b=range(8)), 40)  # noqa: S311
    found = analyse(table(points, lambda p: math.exp(noise.random())))
    assert any("its shares are rough" in note for note in found.notes)


def test_many_levels_are_put_together_for_the_shares_alone() -> None:
    found = analyse(table(grid(a=range(100), b=SIGNS), logarithmic(lambda p: p["a"] / 100)))
    assert alone(found)["a"] > 0.99
    assert len(parameter(found, "a").levels) == 100
    assert any(note.startswith("levels put together") for note in found.notes)


# PED-ANOVA


def test_it_ranks_as_optunas_evaluator_does() -> None:
    import optuna

    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, (200, 3))
    values = np.exp(codes[:, 0] + 0.5 * codes[:, 1] + 0.01 * rng.random(200))
    distributions = {n: optuna.distributions.CategoricalDistribution(range(4)) for n in "abc"}
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study()
    for row, value in zip(codes.tolist(), values.tolist(), strict=True):
        params = dict(zip("abc", row, strict=True))
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=value))
    theirs = optuna.importance.get_param_importances(
        study, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
    )
    ours = top_shares(codes, (4, 4, 4), values)
    assert ours is not None
    assert dict(zip("abc", ours, strict=True)) == pytest.approx(theirs, abs=0.1)


def test_its_parts_add_up_to_one_and_failures_are_never_among_the_best(sampled: Importance) -> None:
    assert sum(one.top.value for one in sampled.parameters) == pytest.approx(1)
    points = grid(a=range(10), b=range(4))
    found = analyse(table(points, lambda p: None if p["b"] == 0 else 1 + p["a"] * 0.1))
    assert parameter(found, "a").top.value > 0.8
    assert parameter(found, "b").top.value > 0.01


# Failures


def test_a_failed_configuration_counts_as_slow_as_the_slowest() -> None:
    """Times 1 and e for b, a failure for a = 1: in logarithms 0, 1 against 1, 1."""
    points = grid(a=range(2), b=range(2))
    found = analyse(table(points, lambda p: None if p["a"] else math.exp(p["b"])))
    assert alone(found) == pytest.approx({"a": 1 / 3, "b": 1 / 3})
    assert found.failed == {"launch_error": 2}
    assert (found.tried, found.valid) == (4, 2)
    assert "2 failed configurations count as slow as the slowest valid one" in found.notes


def test_what_decides_whether_a_configuration_is_valid_is_told_apart() -> None:
    found = analyse(table(grid(a=range(4), b=range(4)), lambda p: None if p["a"] == 3 else 1.0 + p["b"]))
    assert parameter(found, "a").validity.value == pytest.approx(1)
    assert parameter(found, "b").validity.value == pytest.approx(0, abs=1e-9)
    assert [(one.value, one.tried, one.valid) for one in parameter(found, "a").levels][-1] == (3, 4, 0)


def test_where_everything_failed_there_is_no_winner_and_no_share() -> None:
    found = analyse(table(grid(a=range(4), b=range(4)), lambda p: None))
    assert found.winner is None
    assert found.neighbours == ()
    assert found.how == "every configuration failed"
    assert alone(found) == {}
    assert found.failed == {"launch_error": 16}


def test_one_row_is_a_winner_without_an_explanation() -> None:
    found = analyse(table([{"a": 1, "b": "x"}], lambda p: 2.0))
    assert found.winner is not None
    assert found.winner.params == {"a": 1, "b": "x"}
    assert found.constant == {"a": 1, "b": "x"}
    assert found.how == "no parameter was varied"
    assert found.robustness.measured == 0
    assert found.robustness.median is None


def test_a_kernel_without_parameters_has_nothing_to_explain() -> None:
    found = analyse(table([{}], lambda p: 2.0))
    assert (found.tried, found.parameters, found.constant) == (1, (), {})


def test_one_parameter_explains_everything_and_constant_ones_stand_apart() -> None:
    found = analyse(table(grid(a=(1, 2, 4), b=(7,)), lambda p: 1.0 * p["a"]))
    assert alone(found) == pytest.approx({"a": 1.0})
    assert total(found) == pytest.approx({"a": 1.0})
    assert found.constant == {"b": 7}
    assert found.pairs == ()


def test_equal_times_have_no_variance_to_share() -> None:
    found = analyse(table(grid(a=range(4), b=range(4)), lambda p: 1.0))
    assert found.how == "all configurations take the same time"
    assert alone(found) == {}


def test_too_few_configurations_have_no_model() -> None:
    found = analyse(table(grid(a=range(3), b=range(3))[:-1], logarithmic(lambda p: p["a"])))
    assert "too few for a model" in found.how
    assert found.winner is not None
    assert len(parameter(found, "a").levels) == 3


def test_a_configuration_tried_again_counts_once_with_its_best_valid_row() -> None:
    trials = [
        trial(1, {"a": 1}, None),
        trial(2, {"a": 1}, 3.0),
        trial(3, {"a": 2}, 2.0),
        trial(4, {"a": 1}, 2.5),
    ]
    found = analyse(frame(trials))
    assert (found.tried, found.valid) == (2, 2)
    assert [one.best for one in parameter(found, "a").levels] == [2.5, 2.0]


# The winner's neighbours


def by_change(found: Importance) -> dict[tuple[str, Any], Any]:
    return {(one.parameter, one.value): one for one in found.neighbours}


def test_each_change_of_one_parameter_is_measured_failed_or_unknown() -> None:
    points = [
        {"t": 16, "u": "x"},
        {"t": 8, "u": "x"},
        {"t": 32, "u": "x"},
        {"t": 64, "u": "y"},
        {"t": 8, "u": "y"},
    ]
    times = {16: 1.0, 8: 1.5, 32: None, 64: 3.0}
    found = analyse(table(points, lambda p: times[p["t"]] if p["u"] == "x" else 3.0))
    around = by_change(found)
    assert set(around) == {("t", 8), ("t", 32), ("u", "y")}
    measured = around["t", 8]
    assert measured.outcome is Outcome.MEASURED
    assert measured.slowdown == pytest.approx(1.5)
    assert measured.low == pytest.approx(1.5 / 1.01, rel=0.02)
    assert measured.low < 1.5 < measured.high or measured.low == measured.high
    assert around["t", 32].outcome is Outcome.FAILED
    assert around["t", 32].reason == "launch_error: too many resources requested"
    assert around["u", "y"].outcome is Outcome.NOT_MEASURED
    assert (around["u", "y"].slowdown, around["u", "y"].steps) == (None, 0)
    assert (found.robustness.measured, found.robustness.failed, found.robustness.not_measured) == (1, 1, 1)
    assert found.robustness.median == found.robustness.worst == pytest.approx(1.5)


def test_past_a_level_that_was_not_tried_the_next_one_is_looked_for() -> None:
    points = [{"t": 1, "u": 0}, {"t": 4, "u": 0}, {"t": 2, "u": 1}]
    around = by_change(analyse(table(points, lambda p: float(p["t"]))))
    assert around["t", 2].outcome is Outcome.NOT_MEASURED
    assert around["t", 4].outcome is Outcome.MEASURED
    assert (around["t", 2].steps, around["t", 4].steps) == (1, 2)


def test_in_a_whole_table_what_is_missing_is_infeasible_and_stepped_over() -> None:
    points = [{"t": 1, "u": 0}, {"t": 4, "u": 0}, {"t": 2, "u": 1}]
    around = by_change(analyse(table(points, lambda p: float(p["t"])), whole=True))
    assert set(around) == {("t", 4), ("u", 1)}
    assert around["t", 4].steps == 2
    assert around["u", 1].outcome is Outcome.INFEASIBLE


def test_a_space_knows_levels_that_nobody_tried() -> None:
    space = build_space([ParamSpec("t", (1, 2, 4), 1), ParamSpec("u", (0, 1), 0)], [parse("t * u < 2")], {})
    around = by_change(
        analyse(table([{"t": 1, "u": 0}, {"t": 4, "u": 0}], lambda p: float(p["t"])), space=space)
    )
    assert around["t", 2].outcome is Outcome.NOT_MEASURED
    assert around["u", 1].outcome is Outcome.NOT_MEASURED
    with pytest.raises(ConfigError, match="the space has the parameters t, u, the table v"):
        analyse(table([{"v": 1}], lambda p: 1.0), space=space)


def test_the_model_guesses_what_was_not_measured_and_says_that_it_does() -> None:
    points = [p for p in grid(a=range(4), b=range(4), c=range(4)) if p != {"a": 1, "b": 0, "c": 0}]
    found = analyse(table(points, logarithmic(lambda p: 0.5 * p["a"] + 0.1 * p["b"])))
    missing = by_change(found)["a", 1]
    assert missing.outcome is Outcome.NOT_MEASURED
    assert missing.slowdown is None
    assert missing.guess == pytest.approx(math.exp(0.5), rel=0.3)
    assert all(one.guess is None for one in found.neighbours if one.outcome is Outcome.MEASURED)
    assert found.robustness.not_measured == 1


def test_the_winner_is_the_one_that_won_the_confirmation() -> None:
    points = grid(a=range(4), b=range(4))
    made = table(points, lambda p: 1 + 0.001 * p["a"] + p["b"])
    finals = [final({"a": 0, "b": 0}, 1.2), final({"a": 1, "b": 0}, 1.0)]
    found = analyse(made, confirmed=finals)
    assert found.winner is not None
    assert found.winner.confirmed
    assert found.winner.params == {"a": 1, "b": 0}
    assert not analyse(made).winner.confirmed
    assert [one.winner for one in parameter(found, "a").levels] == [False, True, False, False]


# Levels


def test_each_level_has_the_best_and_the_median_over_the_others() -> None:
    found = analyse(table(grid(a=(1, 2), b=(1, 2, 3)), lambda p: 1.0 * p["a"] * p["b"]))
    levels = parameter(found, "a").levels
    assert [(one.value, one.best, one.median, one.of_best) for one in levels] == [(1, 1, 2, 1), (2, 2, 4, 2)]
    assert [one.winner for one in levels] == [True, False]


# Groups


def test_a_table_of_several_kernels_is_taken_group_by_group() -> None:
    points = grid(a=range(4), b=range(3))
    one = table(points, logarithmic(lambda p: p["a"]))
    two = table(points, logarithmic(lambda p: p["b"]), study="other", kernel="other")
    both = pd.concat([one, two])
    assert [found.kernel for found in analyse_groups(both)] == ["k", "other"]
    assert analyse(both, "other") == analyse(two)
    with pytest.raises(ConfigError, match="2 groups of configurations: k float32 s a device"):
        analyse(both)
    with pytest.raises(ConfigError, match="no study 'third' is in the table"):
        analyse(both, "third")
    with pytest.raises(ConfigError, match="no candidate is in it"):
        analyse(one.iloc[:0])


def test_a_librarys_row_is_no_configuration() -> None:
    rows = [trial(n, {"a": n}, 1.0 * n) for n in (1, 2)]
    library = trial(0, {"library": "cublas"}, 0.5, role=Role.BASELINE, kernel="cublas")
    assert analyse(frame([library, *rows])).tried == 2


def test_failed_rows_belong_to_the_group_of_those_that_were_timed() -> None:
    points = grid(a=range(4), b=range(3))
    trials = [trial(n, p, None if p["a"] == 3 else 1.0 + p["b"], **({"time_source": None} if p["a"] == 3 else {}))
              for n, p in enumerate(points, 1)]  # fmt: skip
    (found,) = analyse_groups(frame(trials))
    assert (found.tried, found.valid, found.time_source) == (12, 9, "measured")


def test_a_record_is_plain_json() -> None:
    found = analyse(table(grid(a=range(4), b=("x", "y")), lambda p: None if p["a"] == 3 else 1.0 + p["a"]))
    read = json.loads(json.dumps(found.record(), allow_nan=False))
    assert read["winner"]["params"] == {"a": 0, "b": "x"} or read["winner"]["params"] == {"a": 0, "b": "y"}
    assert {one["outcome"] for one in read["neighbours"]} == {"measured"}
    assert read["parameters"][0]["alone"]["value"] > 0.9


# Recorded spaces


@pytest.fixture(scope="module")
def tensor_space() -> Importance:
    (found,) = analyse_results(read_results([SPACES / "mma_sync-4096.csv.gz"])[0])
    return found


def test_a_recording_says_itself_that_it_is_whole(tensor_space: Importance) -> None:
    assert tensor_space.whole
    assert tensor_space.how == "exact over all 1332 feasible configurations"
    assert tensor_space.failed == {"infeasible": 6}
    assert tensor_space.constant == {"group": 8}


def test_the_pipelines_depth_and_the_tiles_depth_act_together(tensor_space: Importance) -> None:
    """Deeper tiles need fewer stages: neither explains much alone, and they are the strongest pair."""
    strongest = tensor_space.pairs[0]
    assert {strongest.first, strongest.second} == {"bk", "stages"}
    assert strongest.share.value > 0.1
    assert total(tensor_space)["bk"] > 5 * alone(tensor_space)["bk"]


def test_the_model_of_a_part_of_it_agrees_with_the_whole(tensor_space: Importance) -> None:
    rows = read_results([SPACES / "mma_sync-4096.csv.gz"])[0].trials
    found = analyse(rows.sample(600, random_state=0))
    assert found.evaluator == "fANOVA"
    for name, share in alone(tensor_space).items():
        assert alone(found)[name] == pytest.approx(share, abs=0.1)
