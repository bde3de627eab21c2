"""Two objectives at once: which rows are on the front, what the searches find of it, and what rows rank by."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("contract.store_contract", "contract.search_contract")
pytest.importorskip("pandas")

from contract.search_contract import register_tiled, space_of  # noqa: E402
from contract.store_contract import trial  # noqa: E402

from sweeper.config import MeasureConfig  # noqa: E402
from sweeper.errors import ConfigError  # noqa: E402
from sweeper.model import Energy, Role, Stage, Status, Timing, Trial  # noqa: E402
from sweeper.record import decode, encode  # noqa: E402
from sweeper.search import make  # noqa: E402
from sweeper.space import Space  # noqa: E402
from sweeper.table import best, best_per_shape, frame, read_csv, write_csv  # noqa: E402
from sweeper.table.objective import objective_value, rank_value  # noqa: E402
from sweeper.table.pareto import PARETO, pareto  # noqa: E402

SEVERAL = ["tpe", "tpe_univariate", "nsgaii", "grid", "random"]
ONE = ["bayes", "gp", "cmaes"]


def drawn(joules: float) -> Energy:
    return Energy(joules, 0.9 * joules, 1.1 * joules, 400.0, "counter")


def metered(number: int, ms: float, joules: float | None, **changes: Any) -> Trial:
    timing = Timing((ms,) * 6, "events", "cold", energy=None if joules is None else drawn(joules))
    details = {"objective": changes.pop("objective", "both")}
    changes = {"params": {"tile": number}, **changes}
    return trial(number, timing=timing, details=details, **changes)


# The table


def test_the_front_is_what_no_other_beats_in_both() -> None:
    table = frame(
        [
            metered(1, 2.0, 0.5),
            metered(2, 1.0, 0.8),
            metered(3, 1.5, 0.9),  # slower than 2 and takes more
            metered(4, 3.0, 0.4),
            metered(5, 3.0, 0.6),
        ]
    )
    front = pareto(table)
    assert front["trial"].tolist() == [2, 1, 4]
    assert front["time_percent"].tolist() == pytest.approx([0, 100, 200])
    assert front["energy_percent"].tolist() == pytest.approx([100, 25, 0])
    assert front["speed_saves_percent"].tolist() == pytest.approx([0, 37.5, 50])
    assert set(PARETO) <= set(front.columns)


def test_of_equals_the_first_stands_and_what_failed_or_is_a_librarys_does_not() -> None:
    failure = {"status": Status.WRONG_RESULT, "stage": Stage.VERIFY, "reason": "wrong"}
    table = frame(
        [
            metered(1, 1.0, 0.5),
            metered(2, 1.0, 0.5),
            metered(3, 0.1, 0.1, **failure),
            metered(0, 0.2, 0.2, role=Role.BASELINE, params={"library": "cublas"}),
            metered(4, 0.5, None),
        ]
    )
    assert pareto(table)["trial"].tolist() == [1]


def test_each_study_has_its_own_front() -> None:
    table = frame([metered(1, 1.0, 0.5), metered(1, 9.0, 9.0, study="other")])
    assert len(pareto(table)) == 2
    assert pareto(table)["time_percent"].tolist() == [0, 0]


def test_without_energies_there_is_no_front() -> None:
    assert pareto(frame([trial(1)])).empty
    assert pareto(frame([])).empty


def test_gigaflops_a_watt_are_operations_a_joule() -> None:
    (row,) = frame([metered(1, 1.0, 0.5, flops=2 * 10**11)]).to_dict("records")
    assert row["gflops_per_w"] == pytest.approx(400)
    assert (row["energy_j"], row["energy_low_j"], row["energy_high_j"]) == pytest.approx((0.5, 0.45, 0.55))
    assert (row["energy_w"], row["energy_source"], row["objective"]) == (400, "counter", "both")


def test_rows_rank_by_energy_where_that_is_their_objective() -> None:
    trials = [
        metered(n, ms, j, objective="energy") for n, ms, j in [(1, 1.0, 0.9), (2, 2.0, 0.5), (3, 0.5, None)]
    ]
    table = frame(trials)
    assert best(table)["trial"] == 2
    assert best_per_shape(table)["trial"].tolist() == [2]
    by_time = frame([metered(n, ms, j) for n, ms, j in [(1, 1.0, 0.9), (2, 2.0, 0.5)]])
    assert best(by_time)["trial"] == 1


def test_energies_survive_a_file_and_a_record(tmp_path: Path) -> None:
    one = metered(1, 1.0, 0.5)
    assert decode(encode(one)) == one
    write_csv(frame([one]), tmp_path / "t.csv")
    assert read_csv(tmp_path / "t.csv")["energy_j"].tolist() == [0.5]


def test_a_store_from_before_energies_opens() -> None:
    row = encode(metered(1, 1.0, 0.5))
    timing = json.loads(str(row["timing"]))
    del timing["energy"]
    old = decode({**row, "timing": json.dumps(timing)})
    assert old.energy is None
    assert old.timing == Timing((1.0,) * 6, "events", "cold")


# What a search is told


def test_a_search_is_told_milliseconds_joules_or_both() -> None:
    one = metered(1, 2.0, 0.5)
    assert objective_value(one, "time") == 2.0
    assert objective_value(one, "energy") == 0.5
    assert objective_value(one, "both") == (2.0, 0.5)
    assert rank_value(one) == 2.0
    assert rank_value(replace(one, details={"objective": "energy"})) == 0.5


@pytest.mark.parametrize("objective", ["energy", "both"])
def test_a_configuration_without_its_energy_is_told_as_failed(objective: str) -> None:
    assert objective_value(metered(1, 2.0, None), objective) is None
    assert objective_value(metered(1, 2.0, 0.5, status=Status.CRASH), objective) is None


def test_time_alone_leaves_the_conditions_of_a_result_as_they_were() -> None:
    usual = MeasureConfig().conditions()
    assert not {"objective", "energy_seconds"} & set(usual)
    assert MeasureConfig(energy_seconds=2.0).conditions() == usual
    energy = MeasureConfig(objective="energy", stop_factor=1.5).conditions()
    assert energy["objective"] == "energy"
    assert energy["stop_factor"] is None
    assert MeasureConfig(objective="energy", energy_seconds=2.0).conditions() != energy


# Searches


def both(space: Space, row: int) -> tuple[float, float]:
    """The first parameters make it fast, the last ones thrifty: a front along which one is paid for the other."""
    place = space.indices[row] / [max(1, len(levels) - 1) for levels in space.levels]
    fast = float(((place - 1) ** 2).sum())
    thrifty = float((place[:2] ** 2).sum() + ((place[2:] - 1) ** 2).sum())
    return 1 + fast, 1 + thrifty


def front_of(points: list[tuple[float, float]]) -> set[tuple[float, float]]:
    return {p for p in points if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points)}


def hypervolume(points: list[tuple[float, float]], corner: float = 6.0) -> float:
    area, height = 0.0, corner
    for x, y in sorted(front_of(points)):
        area += (corner - x) * (height - y)
        height = y
    return area


def searched(name: str, space: Space, seed: int, budget: int) -> list[tuple[float, float]]:
    strategy, told = make(name, space, seed, objectives=2), []
    for place in range(budget):
        for row in strategy.ask(1):
            told.append(both(space, row))
            strategy.tell(row, None if place == 3 else told[-1])
    return told


@pytest.mark.parametrize("name", SEVERAL)
def test_a_search_to_the_end_has_the_whole_front(name: str) -> None:
    space = space_of(a=[1, 2, 3], b=[1, 2, 4, 8], c=[1, 2])
    found = searched(name, space, 0, len(space))
    assert len(found) == len(space)
    assert front_of(found) == front_of([both(space, row) for row in range(len(space))])


@pytest.mark.parametrize("name", ["tpe", "nsgaii"])
def test_a_sampler_of_several_objectives_comes_nearer_to_the_front_than_chance(name: str) -> None:
    space = register_tiled()
    whole = hypervolume([both(space, row) for row in range(len(space))])

    def share(which: str) -> float:
        return statistics.mean(hypervolume(searched(which, space, seed, 80)) / whole for seed in range(4))

    assert share(name) > share("random")
    assert share(name) > 0.9


@pytest.mark.parametrize("name", SEVERAL)
def test_the_same_seed_asks_the_same_rows(name: str) -> None:
    space = register_tiled()
    assert searched(name, space, 5, 30) == searched(name, space, 5, 30)


@pytest.mark.parametrize("name", ONE)
def test_a_search_of_one_value_says_which_ones_take_two(name: str) -> None:
    with pytest.raises(ConfigError, match=r"makes one value small; use one of tpe, .*nsgaii"):
        make(name, space_of(a=[1, 2]), objectives=2)


def test_the_number_of_values_told_is_that_of_the_objectives() -> None:
    space = space_of(a=[1, 2, 3])
    with pytest.raises(ValueError, match="a search of 2 values"):
        make("random", space, objectives=2).tell(0, 1.0)
    with pytest.raises(ValueError, match="a search of 1 values"):
        make("random", space).tell(0, (1.0, 2.0))
    with pytest.raises(ValueError, match="cannot rank"):
        make("random", space, objectives=2).tell(0, (1.0, float("nan")))
