"""How long a search takes to arrive: what counts as arriving, and that both sides are watched by one rule."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import bench_search_wall as wall
import kernel_tuner_live

from sweeper.build.source import translation_unit
from sweeper.check.compose import Composer
from sweeper.recording import read_recorded
from sweeper.recording.compact import notes_of

TABLE = Path(__file__).resolve().parents[1] / "results" / "h200" / "spaces" / "tiled-2048.csv.gz"
GOAL = wall.goal_of(read_recorded(TABLE), 0.01)


def test_the_goal_is_what_was_recorded_within_a_percent_of_the_best() -> None:
    times = {tile: GOAL.time_ms({"tile": tile}) for tile in (4, 8, 16, 32)}
    best = min(times, key=times.__getitem__)
    assert GOAL.reached({"tile": best})
    assert [tile for tile in times if GOAL.reached({"tile": tile})] == [
        tile for tile, ms in times.items() if ms <= 1.01 * times[best]
    ]
    assert not GOAL.reached({"tile": 5}), "nobody knows what was not recorded"


def test_our_command_has_arrived_when_the_row_is_in_its_store(tmp_path: Path) -> None:
    command = notes_of(TABLE)["command"].split()
    overrides = [word for word in command if word.startswith(("kernel=", "kernel.", "shape"))]
    found = wall.ours([*overrides, "backend=replay", f"backend.path={TABLE}"], 0, tmp_path, GOAL, limit_s=60)
    assert found["arrived"]
    assert GOAL.reached(found["params"])
    assert 1 <= found["configurations"] <= 4
    assert 0 < found["first_s"] <= found["seconds"] < 60


def test_who_says_nothing_is_stopped_and_has_not_arrived(tmp_path: Path) -> None:
    found = wall.watched([sys.executable, "-c", "import time; time.sleep(60)"], {}, tmp_path, list, GOAL, 0.5)
    assert not found["arrived"]
    assert found["configurations"] == 0
    assert 0.5 <= found["seconds"] < 10


def test_who_did_not_arrive_gives_the_least_ratio_there_can_be() -> None:
    row = {"arrived": True, "configurations": 5, "first_s": 1.0, "params": {}, "recorded_ms": 1.0}
    rows = [
        {**row, "seed": 0, "side": wall.OURS, "seconds": 2.0},
        {**row, "seed": 0, "side": wall.THEIRS, "seconds": 20.0, "arrived": False},
        {**row, "seed": 1, "side": wall.OURS, "seconds": 4.0},
        {**row, "seed": 1, "side": wall.THEIRS, "seconds": 20.0},
    ]
    text = wall.summary(rows, 0.01)
    assert "| 0 | 2.00 | 5 | > 20.00 | 5 | ≥ 10.0 |" in text
    assert "at least 7.5 (5.0 to 10.0, 2 seeds)" in text


def test_who_failed_before_it_measured_anything_is_no_rival() -> None:
    row = {"arrived": True, "configurations": 5, "first_s": 1.0, "params": {}, "recorded_ms": 1.0}
    failed = {"seed": 0, "side": wall.THEIRS, "seconds": 6.0, "arrived": False, "configurations": 0}
    text = wall.summary([{**row, "seed": 0, "side": wall.OURS, "seconds": 2.0}, {**row, **failed}], 0.01)
    assert "| 0 | 2.00 | 5 | > 6.00 | 0 |  |" in text
    assert "Median" not in text


@pytest.mark.parametrize("kernel", ["warp_tile", "register_tile", "vector_loads"])
def test_kernel_tuner_gets_the_same_source_with_its_arguments_in_front(kernel: str) -> None:
    with Composer() as composer:
        spec, _ = composer.compose([f"kernel={kernel}"])
    text, options = kernel_tuner_live.plain_source(spec, spec.default_point)
    assert 'extern "C" __global__ void' in text
    assert "template <typename T, int" not in text
    assert "using T = float;" in text
    ours = translation_unit(spec, spec.default_point)
    body = ours.text[ours.text.index("__global__ void") :]
    assert body in text
    assert options[0] == "-std=c++17"
