"""`plan=true`: what a command would cost is said before anything is built, and nothing is touched."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.cli.app import main
from sweeper.cli.command_line import Arguments, gpus_named, normalise
from sweeper.errors import ConfigError
from sweeper.plan import Planned, Protocol, Rate, Work, as_json, as_text, estimated, rates_of
from sweeper.plan.cost import expected_samples, measuring_s
from sweeper.plan.spread import in_better_order, longest_first, makespan
from sweeper.plan.wording import duration
from sweeper.results import read_results

RECORDED = Path(__file__).parents[1] / "results" / "h200"
WIDTH = 100


def cube(size: int) -> dict[str, int]:
    return {"M": size, "N": size, "K": size}


def cubic(dims: Mapping[str, int]) -> float:
    return 1e-12 * dims["M"] * dims["N"] * dims["K"]


def work(size: int = 1024, **more: Any) -> Work:
    given = {
        "feasible": 200,
        "product": 400,
        "evaluations": 50,
        "predicted_s": cubic(cube(size)),
        "predict": cubic,
    }
    return Work("tiled", "float32", f"{size}", cube(size), **{**given, **more})


def job(number: int = 1, asked: str = "", **more: Any) -> Planned:
    return Planned(number, asked, **{"works": [work()], "workers": 16, **more})


def rate(size: int, launch_s: float, **more: Any) -> Rate:
    base = Rate("runs", "tiled", "float32", cube(size), "NVIDIA H200", 50, 0.1, launch_s, 10.0, 0.2)
    return replace(base, **more)


# What a configuration costs.


def test_a_launch_that_takes_long_is_sampled_until_the_time_for_it_is_over() -> None:
    protocol = Protocol(min_samples=10, max_seconds=1.0, stops_early=False)
    assert expected_samples(protocol, 1e-3) == 10
    assert expected_samples(protocol, 0.5) == 2


@given(st.floats(1e-6, 1.0), st.floats(1, 100), st.integers(0, 10**10))
def test_more_launches_longer_ones_and_larger_arrays_cost_more(
    launch_s: float, samples: float, size: int
) -> None:
    cost = measuring_s(launch_s, samples, size)
    assert measuring_s(2 * launch_s, samples, size) > cost
    assert measuring_s(launch_s, samples + 1, size) > cost
    assert measuring_s(launch_s, samples, size + 10**9) > cost


# What a job costs.


def test_the_static_model_is_asked_where_no_run_is_known_and_says_less_surely() -> None:
    alone, known = estimated(job()), estimated(job(), [rate(1024, 1e-3)])
    assert alone.sources == ("static model",)
    assert known.sources == ("runs",)
    assert alone.device.high / alone.device.likely > known.device.high / known.device.likely


def test_other_sizes_are_scaled_by_the_static_model_and_the_nearest_counts() -> None:
    (near,) = estimated(job(works=[work(2048)]), [rate(256, 1.0), rate(1024, 5e-3)]).sources
    assert near == "runs at 1024x1024x1024"
    small, large = (estimated(job(works=[work(s)]), [rate(1024, 5e-3)]).device.likely for s in (1024, 2048))
    assert large == pytest.approx(8 * small, rel=0.2)


@pytest.mark.parametrize("other", [{"kernel": "naive"}, {"dtype": "float16"}, {"dims": {"N": 4}}])
def test_another_kernel_class_or_kind_of_problem_says_nothing(other: dict[str, Any]) -> None:
    assert estimated(job(), [rate(1024, 1.0, **other)]).sources == ("static model",)


def test_what_is_stored_costs_no_device_and_no_compiler() -> None:
    done = estimated(job(works=[work(stored=50)]))
    assert (done.device.likely, done.build.likely) == (0, 0)
    assert done.wall.likely > 0


def test_builds_that_take_longer_than_the_measuring_are_what_is_waited_for() -> None:
    quick, slow = (estimated(job(workers=n), [rate(1024, 1e-4, build_s=2.0)]) for n in (64, 1))
    assert quick.device == slow.device
    assert slow.wall.likely > quick.wall.likely + 50


def test_two_devices_halve_the_search_and_not_the_gpu_time() -> None:
    one, two = (estimated(job(devices=n, works=[work(4096)], workers=64)) for n in (1, 2))
    assert two.wall.likely < 0.7 * one.wall.likely
    assert two.gpu.likely > one.gpu.likely


def test_libraries_and_finalists_are_counted() -> None:
    plain, whole = estimated(job()), estimated(job(works=[work(libraries=2, entrants=7, blocks=12)]))
    assert whole.device.likely > plain.device.likely + 1


def test_a_kernel_that_nothing_is_known_of_is_not_guessed_at() -> None:
    unknown = estimated(job(works=[work(predicted_s=None, predict=lambda _: None)]))
    assert not unknown.known
    assert any("not counted: the launches of 1 job" in line for line in as_text([unknown]))


def test_a_recorded_run_on_an_h200_took_what_another_one_says_it_would() -> None:
    known = [r for one in read_results([RECORDED / "ladder-course"]) for r in rates_of(one)]
    (recorded,) = (
        r
        for one in read_results([RECORDED / "rungs-large"])
        for r in rates_of(one)
        if r.kernel == "register_tile"
    )
    asked = work(4096, evaluations=recorded.rows)
    planned = estimated(job(works=[replace(asked, kernel="register_tile")]), known)
    assert planned.sources == ("ladder-course",)
    assert planned.device.low < recorded.rows * recorded.measure_s < planned.device.high


# Several jobs on several GPUs.


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=30), st.integers(1, 8))
def test_jobs_side_by_side_take_no_less_than_the_longest_and_no_more_than_graham_allows(
    seconds: list[float], places: int
) -> None:
    took = makespan(sorted(seconds, reverse=True), places)
    least = max(*seconds, sum(seconds) / places)
    assert least <= took * (1 + 1e-9)
    assert took <= sum(seconds) / places + max(seconds) * (1 - 1 / places) + 1e-6


def jobs(*sizes: int) -> list[Any]:
    return [
        estimated(job(i, f"kernel=tiled shape={size}", works=[work(size)]))
        for i, size in enumerate(sizes, start=1)
    ]


def test_the_longest_job_is_shown_first() -> None:
    assert [one.job.number for one in longest_first(jobs(512, 8192, 2048))] == [2, 3, 1]


def test_lists_are_written_in_the_order_that_begins_with_the_longest_jobs() -> None:
    text, ordered = in_better_order(jobs(512, 8192, 2048)) or ("", [])
    assert text == "shape=8192,2048,512"
    assert [one.job.number for one in ordered] == [2, 3, 1]
    assert in_better_order(jobs(8192, 2048, 512)) is None


def test_what_is_no_product_of_lists_is_left_in_its_order() -> None:
    odd = [*jobs(512), estimated(job(2, "kernel=naive"))]
    assert in_better_order(odd) is None


# What is said.


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.5, "0.5 s"), (42, "42 s"), (200, "3.3 min"), (9000, "2.5 h"), (1e6, "12 days")]
)
def test_durations_have_two_digits_that_count(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_plan_fits_the_page_and_sums_up() -> None:
    long = [
        estimated(
            job(
                i,
                works=[
                    replace(work(), kernel="wgmma_specialised_with_a_long_name", shape="100000x100000x77-nt")
                ],
            )
        )
        for i in range(3)
    ]
    lines = as_text(long, 2)
    assert max(map(len, lines)) <= WIDTH
    assert "3 jobs: 150 configurations" in lines
    assert any(re.match(r"GPU-hours: \S+, between \S+ and \S+", line) for line in lines)


def test_json_has_the_same_and_nothing_that_is_no_number() -> None:
    node = json.loads(as_json(jobs(512, 8192), 2))
    assert [one["number"] for one in node["jobs"]] == [2, 1]
    assert node["evaluations"] == 100
    assert node["gpu_s"]["low"] < node["gpu_s"]["likely"] < node["gpu_s"]["high"]
    assert node["wall_s"]["longest_first"] <= node["wall_s"]["given"]


# The command line.


def arguments(*words: str) -> Arguments:
    return normalise(words, groups=["kernel", "backend"], default_root=Path("/runs"))


@pytest.mark.parametrize(
    ("word", "form"),
    [
        ("plan=true", "text"),
        ("--plan", "text"),
        ("plan=json", "json"),
        ("plan=false", None),
        ("plan.form=text", "text"),
    ],
)
def test_a_plan_is_asked_for_in_a_word(word: str, form: str | None) -> None:
    told = arguments(word)
    assert told.plan == form
    assert f"++plan.form={form or 'null'}" in told.hydra


def test_a_plan_of_no_known_form_is_refused() -> None:
    with pytest.raises(ConfigError, match="plan=csv is none of true, json, false"):
        arguments("plan=csv")


def test_no_process_for_a_gpu_is_started_for_a_plan() -> None:
    assert gpus_named(arguments("plan=true").hydra) == 0
    assert gpus_named(arguments("plan=false").hydra) == 1


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("here")


@pytest.fixture(autouse=True)
def _elsewhere(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)


def test_a_multirun_is_planned_and_leaves_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A job that cannot run is told, and the others are planned."""
    assert main(["-m", "kernel=tiled,wgmma", "shape=large,odd", "plan=true", "build.workers=16"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert sorted(line.split()[1] for line in lines[1:4]) == ["tiled", "tiled", "wgmma"]
    assert any(line.startswith("job 4: no valid configuration") for line in lines)
    assert "4 jobs: 56 configurations" in " ".join(lines)
    assert list(here.iterdir()) == []


def test_jobs_side_by_side_are_told_how_to_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["-m", "kernel=tiled", "shape=tiny,small,huge", "plan=true", "plan.devices=2"]
    assert main([*command, "measure=thorough", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]) == 0
    out = capsys.readouterr().out
    assert "wall time on 2 GPUs" in out
    assert "shape=huge,small,tiny" in out


def test_an_error_is_an_error_of_the_plan_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel=tiled", "plan=true", "search.bugdet=3"]) == 2
    assert "bugdet" in capsys.readouterr().err
    assert main(["kernel=tiled", "plan=true", "plan.devices=0"]) == 2
    assert "plan.devices = 0" in capsys.readouterr().err
    assert main(["kernel=tiled", "plan=true", "plan.rates=[nowhere]"]) == 4
    assert "nowhere" in capsys.readouterr().err


def test_rates_are_taken_from_named_results(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["kernel=tiled", "shape=large", "plan=json", f"plan.rates=[{RECORDED / 'rungs-large'}]"]
    assert main(command) == 0
    (planned,) = json.loads(capsys.readouterr().out)["jobs"]
    assert planned["studies"][0]["source"] == "rungs-large"


def test_rows_that_would_answer_cost_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the results folder that is named again, untouched by the plan. Predicted rows give no rate."""
    out = tmp_path / "out"
    command = ["kernel=tiled", "shape=tiny", "backend=emulator", f"results_dir={out}"]
    assert main([*command, "search.budget=2"]) == 0
    before = {path: path.read_bytes() for path in out.iterdir()}
    capsys.readouterr()

    def stored(*more: str) -> tuple[int, int]:
        assert main([*command, *more, "search.budget=3", "plan=json"]) == 0
        (planned,) = json.loads(capsys.readouterr().out)["jobs"]
        return planned["studies"][0]["stored"], planned["studies"][0]["evaluations"]

    assert stored() == (2, 3)
    assert stored("seed=7") == (0, 3)
    assert {path: path.read_bytes() for path in out.iterdir()} == before
    assert rates_of(*read_results([out])) == []


def test_shapes_that_share_a_budget_are_one_job_with_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["kernel=register_tile", "shapes={small: 3, large: 1}", "search.budget=40", "plan=json"]
    assert main(command) == 0
    (planned,) = json.loads(capsys.readouterr().out)["jobs"]
    assert [study["evaluations"] for study in planned["studies"]] == [30, 10]


@pytest.mark.parametrize("backend", ["emulator", "replay"])
def test_what_runs_on_no_gpu_costs_no_gpu_hours(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel=tiled", "shape=tiny", f"backend={backend}", "plan=true"]) == 0
    assert "no GPU is used" in capsys.readouterr().out
