"""Searches held against each other on recorded tables, and what the figures mean."""

from __future__ import annotations

import csv
import importlib.util
import itertools
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from sweeper.benchmark import BenchmarkConfig
from sweeper.benchmark.chart import chart
from sweeper.benchmark.figures import expected_random, score, summarise
from sweeper.benchmark.kernel_tuner import simulate
from sweeper.benchmark.recorded_space import RecordedSpace, load_space, space_from
from sweeper.benchmark.replayed import Replayed, replay_rows, replay_search
from sweeper.benchmark.report import table
from sweeper.benchmark.run import benchmark, find_spaces
from sweeper.cli.app import main
from sweeper.errors import ConfigError, StorageError
from sweeper.model import Role, Stage, Status
from sweeper.recording import Recorded, write_compact

SPACES = Path(__file__).parents[1] / "results" / "h200" / "spaces"


def row(params: dict[str, Any], time: float | None) -> Recorded:
    ok = time is not None
    return Recorded(
        Role.CANDIDATE, "kernel", "float32", {"M": 8}, params, Status.OK if ok else Status.LAUNCH_ERROR,
        Stage.DONE if ok else Stage.LAUNCH, "", (time,) if time is not None else (), "measured", "events", "cold",
        "NVIDIA H200", "GPU-1", "580", None, 1.0, 0.5,
    )  # fmt: skip


def rows() -> list[Recorded]:
    """A valley over two parameters whose corner fails."""
    return [
        row({"a": a, "b": b}, None if (a, b) == (9, 9) else 1.0 + (a - 6) ** 2 + 2 * (b - 3) ** 2)
        for a, b in itertools.product(range(10), range(10))
    ]


@pytest.fixture
def valley() -> RecordedSpace:
    return space_from("valley", rows())


def test_a_recorded_space_has_exactly_the_recorded_points(valley: RecordedSpace) -> None:
    few = space_from("few", [row({"a": 1, "b": "x"}, 2.0), row({"a": 3, "b": "y"}, None)])
    assert len(few.space) == 2
    assert few.best_ms == 2.0
    assert [math.isnan(t) for t in few.times_ms] == [False, True]
    assert len(valley.space) == 100
    assert valley.best_ms == 1.0


def test_a_table_without_a_time_is_no_space() -> None:
    with pytest.raises(StorageError, match="no configuration with a time"):
        space_from("bad", [row({"a": 1}, None)])


def test_what_a_search_found_is_its_best_so_far_and_what_that_cost(valley: RecordedSpace) -> None:
    order = [valley.space.row(point) for point in map(valley.space.point, (99, 60, 63))]
    found = replay_rows(valley, [r for r in order if r is not None])
    # The first failed; 60 is (6, 0) with 19 ms; 63 is the best.
    assert found.percent.tolist() == pytest.approx([0.0, 100 / 19, 100.0])
    assert found.seconds.tolist() == pytest.approx([1.5, 3.0, 4.5])


@pytest.mark.parametrize("name", ["guided", "random", "grid", "tpe"])
@pytest.mark.parametrize("lookahead", [1, 8])
def test_a_search_of_the_whole_space_ends_at_the_best(
    valley: RecordedSpace, name: str, lookahead: int
) -> None:
    found = replay_search(valley, name, 0, 1000, lookahead=lookahead)
    assert len(found.percent) == 100
    assert found.percent[-1] == 100.0


def test_the_expected_best_of_random_draws_is_that_of_all_draws() -> None:
    few = space_from("few", [row({"a": i}, t) for i, t in enumerate([5.0, 1.0, 3.0, 2.0, 8.0])])
    for n in range(1, 6):
        bests = [min(drawn) for drawn in itertools.combinations([5.0, 1.0, 3.0, 2.0, 8.0], n)]
        assert expected_random(few, n)[n - 1] == pytest.approx(np.mean(bests))


def test_the_score_is_0_for_random_search_and_1_for_the_best_at_once(valley: RecordedSpace) -> None:
    count = 30
    at_once = np.full((2, count), 100.0)
    assert score(valley, at_once) == pytest.approx(1.0)
    by_chance = np.array([replay_search(valley, "random", seed, count).percent for seed in range(400)])
    assert abs(score(valley, by_chance)) < 0.15


def test_a_run_that_ended_early_stays_where_it_was(valley: RecordedSpace) -> None:
    found = [
        Replayed(np.array([50.0, 80.0]), np.array([1.0, 2.0])),
        Replayed(np.full(4, 90.0), np.arange(4.0)),
    ]
    curves = summarise(valley, "x", found, 4)
    assert curves.runs[0].tolist() == [50.0, 80.0, 80.0, 80.0]
    assert curves.median.tolist() == [70.0, 85.0, 85.0, 85.0]
    assert curves.percentile(10)[0] == pytest.approx(54.0)


def test_the_chart_is_svg_with_a_line_for_every_strategy(valley: RecordedSpace) -> None:
    curves = [
        summarise(valley, name, [replay_search(valley, name, seed, 20) for seed in range(3)], 20)
        for name in ("guided", "a<b")[:1]
    ]
    curves.append(summarise(valley, "a<b", [replay_search(valley, "random", 0, 20)], 20))
    for against in ("evaluations", "seconds"):
        tree = ElementTree.fromstring(chart(curves, against=against))  # noqa: S314 - our own text
        assert sum(element.tag.endswith("polyline") for element in tree.iter()) == 2
        assert "a<b" in [element.text for element in tree.iter()]


def test_spaces_are_named_by_patterns_each_once(tmp_path: Path) -> None:
    for name in ("a.csv.gz", "b.csv.gz"):
        write_compact(tmp_path / name, rows())
    found = find_spaces([f"{tmp_path}/*.gz", f"{tmp_path}/a.csv.gz"])
    assert [path.name for path in found] == ["a.csv.gz", "b.csv.gz"]
    with pytest.raises(ConfigError, match="names no file"):
        find_spaces([f"{tmp_path}/c*"])
    with pytest.raises(ConfigError, match="is empty"):
        find_spaces([])


def test_an_unknown_strategy_is_named_and_one_that_lacks_a_package_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_compact(tmp_path / "a.csv.gz", rows())
    config = BenchmarkConfig(spaces=(f"{tmp_path}/a.csv.gz",), strategies=("gided",))
    with pytest.raises(ConfigError, match="'gided' is none of"):
        next(benchmark(config, print))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said: list[str] = []
    config = BenchmarkConfig(
        spaces=(f"{tmp_path}/a.csv.gz",),
        strategies=("cmaes", "kernel_tuner/pso", "random"),
        seeds=2,
        evaluations=10,
        workers=1,
    )
    (curves,) = benchmark(config, said.append)
    assert [one.strategy for one in curves] == ["random"]
    assert "cmaes is left out: it needs cmaes" in said[0]
    assert "kernel_tuner/pso is left out" in said[1]


def test_the_experiment_writes_a_table_a_csv_and_charts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_compact(tmp_path / "valley.csv.gz", rows())
    code = main([
        "experiment=search_benchmark", f"benchmark.spaces=[{tmp_path}/valley.csv.gz]",
        "benchmark.strategies=[guided,random]", "benchmark.seeds=3", "benchmark.evaluations=30",
        "benchmark.workers=2", f"results_dir={tmp_path}/out",
    ])  # fmt: skip
    assert code == 0
    assert "| valley | @10 | @25 | score |" in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"benchmark.md", "benchmark.csv", "valley.svg", "valley-seconds.svg"}
    with (tmp_path / "out" / "benchmark.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 2 * 30
    assert {line["seeds"] for line in lines} == {"3"}
    last = [line for line in lines if line["evaluations"] == "30"]
    assert float(last[0]["seconds"]) == pytest.approx(45.0)


def test_a_space_of_a_few_points_has_its_end_for_a_checkpoint(tmp_path: Path) -> None:
    write_compact(tmp_path / "few.csv.gz", rows()[:4])
    config = BenchmarkConfig(spaces=(f"{tmp_path}/few.csv.gz",), strategies=("guided",), seeds=2, workers=1)
    (curves,) = benchmark(config, print)
    assert table(curves).splitlines()[0] == "| few | @4 | score | s to @4 |"


def test_a_dry_run_says_what_would_be_searched_and_searches_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_compact(tmp_path / "valley.csv.gz", rows())
    code = main([
        "experiment=search_benchmark", f"benchmark.spaces=[{tmp_path}/valley.csv.gz]", "dry_run=true",
        "benchmark.strategies=[guided]", f"results_dir={tmp_path}/out",
    ])  # fmt: skip
    assert code == 0
    assert "30 seeds of guided, 200 evaluations each" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_a_strategy_of_kernel_tuners_runs_by_its_own_simulation(valley: RecordedSpace) -> None:
    if importlib.util.find_spec("kernel_tuner") is None:
        pytest.skip("kernel_tuner is not installed")
    found = simulate(valley, "random_sample", 1, 25)
    assert len(found.percent) == 25
    assert found.seconds[-1] == pytest.approx(25 * 1.5)
    assert (np.diff(found.percent) >= 0).all()


@pytest.mark.parametrize("path", sorted(SPACES.glob("*.csv.gz")), ids=lambda path: path.name)
def test_the_shipped_spaces_say_where_they_were_recorded_and_replay(path: Path) -> None:
    recorded = load_space(path)
    assert recorded.device == "NVIDIA H200"
    assert recorded.kernel
    assert recorded.dims
    assert path.stat().st_size < 300 * 1024
    assert not np.isnan(recorded.seconds).any()
    found = replay_search(recorded, "random", 0, 20)
    assert 0 < found.percent[-1] <= 100
