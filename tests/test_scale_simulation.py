"""The simulation of many GPUs comes to what can be reckoned by hand where one part alone decides."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from scale_simulation import Costs, Layout, simulate

QUICK = Costs(ask_s=1e-4, tell_s=1e-4, store_s=1e-4, build_s=0.0, measure_s=1e-4)
MANY = 400


def rate(layout: Layout, **costs: float) -> float:
    told = {name: getattr(QUICK, name) for name in ("ask_s", "tell_s", "store_s", "build_s", "measure_s")}
    return simulate(layout, Costs(**{**told, **costs})).rate


def one_study(gpus: int = 1, **more: int) -> Layout:
    return Layout(gpus, 1, 1, budget=MANY, **more)


def test_a_device_that_is_slow_is_what_decides() -> None:
    assert rate(one_study(), measure_s=0.1) == pytest.approx(10, rel=0.02)
    assert rate(one_study(gpus=4), measure_s=0.1) == pytest.approx(40, rel=0.02)


def test_a_driver_does_one_thing_at_a_time_however_many_gpus_there_are() -> None:
    costs = {"ask_s": 0.02, "tell_s": 0.02, "store_s": 0.01}
    assert rate(one_study(gpus=64, lookahead=64), **costs) == pytest.approx(20, rel=0.02)


def test_no_more_is_under_way_than_the_search_has_asked() -> None:
    assert rate(one_study(gpus=64, lookahead=8), measure_s=0.1) == pytest.approx(80, rel=0.05)


def test_what_has_to_be_built_waits_for_a_core() -> None:
    layout = Layout(1, 1, 1, budget=MANY, cores_per_gpu=4, cached=False)
    assert rate(layout, build_s=0.4) == pytest.approx(10, rel=0.05)


def test_a_host_builds_what_it_has_built_no_second_time() -> None:
    outcome = simulate(Layout(1, 1, 10, budget=50, distinct=50), QUICK)
    assert outcome.built == 50
    assert outcome.configurations == 500


def test_one_store_takes_rows_one_after_the_other_from_all_drivers() -> None:
    layout = Layout(16, 16, 64, shared_store=True)
    assert rate(layout, store_s=0.01) == pytest.approx(100, rel=0.05)


def test_drivers_of_their_own_do_not_wait_for_each_other() -> None:
    one, eight = (simulate(Layout(n, n, 8 * n, cached=False), QUICK).rate for n in (1, 8))
    assert eight == pytest.approx(8 * one, rel=0.05)
