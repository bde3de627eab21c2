"""What a person is told while a search runs, and at its end."""

from __future__ import annotations

import io
import re
from concurrent.futures import Future
from typing import Any

import pytest
from rich.console import Console
from test_table import failed, library, predicted, timed

from sweeper.cli.live import LiveProgress
from sweeper.cli.terminal import certainty, library_failures, merged_table, results_table, where_time_went
from sweeper.cli.units import format_seconds
from sweeper.model import Build, Stage, Status, Trial
from sweeper.table import frame
from sweeper.tune import Tally
from sweeper.worker.ticket import Ticket

# Progress


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Search:
    """A progress of `total` configurations, on a terminal or not, and all that it has written."""

    def __init__(self, total: int, *, terminal: bool = False, width: int = 100, **env: str) -> None:
        self.text = io.StringIO()
        self.clock = Clock()
        self.out = Console(
            file=self.text, width=width, height=20, force_terminal=terminal, highlight=False,
            soft_wrap=not terminal, _environ={"TERM": "xterm-256color", **env},
        )  # fmt: skip
        self.progress = LiveProgress(self.out, "tiled large", total, now=self.clock)

    def hear(self, trial: Trial, seconds: float = 1.0, *, reused: bool = False) -> None:
        self.clock.now += seconds
        self.progress.finished(trial, reused=reused)

    @property
    def lines(self) -> list[str]:
        return self.text.getvalue().splitlines()

    def shown(self) -> list[str]:
        """What stands on the terminal now."""
        with self.out.capture() as seen:
            self.out.print(self.progress._shown())
        return seen.get().splitlines()


def test_a_log_has_a_line_for_each_tenth_and_none_more_often_than_every_other_second() -> None:
    search = Search(50)
    with search.progress:
        for n in range(1, 51):
            search.hear(timed(n, 1.0), 0.5)
    done = [int(re.search(r": (\d+) of 50", line)[1]) for line in search.lines]  # type: ignore[index]
    assert done == list(range(5, 50, 5))


def test_a_slow_search_has_a_line_every_ten_seconds_and_a_quick_one_has_none() -> None:
    slow, quick = Search(1000), Search(50)
    for n in range(1, 26):
        slow.hear(timed(n, 1.0))
        quick.hear(timed(n, 1.0), 0.01)
    assert len(slow.lines) == 2
    assert quick.lines == []


def test_a_line_says_what_is_best_what_failed_how_fast_it_goes_and_how_long_it_will_take() -> None:
    search = Search(100)
    search.hear(library("cublas", 0.5), 0.0)
    for n in range(1, 10):
        search.hear(timed(n, 10.0 - n) if n % 3 else failed(n, Status.BUILD_ERROR, "no"), 1.0)
    search.hear(timed(10, 0.8), 1.5)
    (line,) = search.lines
    assert line == (
        "tiled large: 10 of 100 (7 ok, 3 build_error), best 800 µs (62.5 % of cublas) with tile=80 vector=4;"
        " 0.95/s, 2 min left"
    )
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", search.text.getvalue())


def test_no_rate_and_no_time_left_are_told_before_they_are_known() -> None:
    search = Search(100)
    for n in range(1, 5):
        search.hear(timed(n, 1.0), 3.0)
    assert search.progress.rate() == search.progress.time_left() == ""
    search.hear(timed(5, 1.0), 3.0)
    assert (search.progress.rate(), search.progress.time_left()) == ("0.33/s", "5 min left")


def test_what_earlier_runs_answer_is_no_work_that_a_rate_could_count() -> None:
    search = Search(100)
    for n in range(1, 50):
        search.hear(timed(n, 1.0), 0.1, reused=True)
    assert search.progress.rate() == ""


@pytest.mark.parametrize("width", [100, 72, 40, 20])
def test_a_terminal_has_two_lines_that_fit_it(width: int) -> None:
    search = Search(40, terminal=True, width=width)
    for n in range(1, 21):
        search.hear(timed(n, 1.0 / n, params={f"parameter_{i}": n * i for i in range(12)}))
    lines = search.shown()
    assert len(lines) == 2
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert all(len(line) <= width for line in plain)
    if width == 100:
        assert "20/40" in plain[0]
        assert "1/s · 20 s left" in plain[0]
        assert plain[1].startswith("  best 50 µs  20 ok  parameter_0=0")


def test_colours_are_left_out_where_the_user_wants_none() -> None:
    search = Search(10, terminal=True, NO_COLOR="1")
    search.hear(timed(1, 1.0))
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", "\n".join(search.shown()))


def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines() -> None:
    search = Search(10, terminal=True, TERM="dumb")
    with search.progress:
        for n in range(1, 10):
            search.hear(timed(n, 1.0), 3.0)
    assert search.lines[0].startswith("tiled large: 1 of 10")


def test_the_phase_is_what_the_next_result_waits_for() -> None:
    progress = Search(10).progress
    build: Future[Build] = Future()
    assert progress.phase() == ""
    progress.waiting(Ticket(None, build))
    assert progress.phase() == "building"
    build.set_result(None)  # type: ignore[arg-type]
    assert progress.phase() == "verifying and timing"
    progress.waiting(Ticket(None, library="cublas"))
    assert progress.phase() == "timing cublas"
    progress.finished(timed(1, 1.0), reused=False)
    assert progress.phase() == ""


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "1 s"), (89, "89 s"), (200, "3 min"), (9000, "2.5 h")])
def test_a_wait_is_told_as_coarsely_as_it_is_known(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


# Where the time went


def told(**seconds: Any) -> str:
    return where_time_went(Tally(seconds={"search": 0.314, "store": 0.0221, **seconds}))


def test_where_the_time_of_a_run_on_a_gpu_went_is_one_line() -> None:
    assert told(total=10.0, device_busy=[8.1], waiting_for_builds=1.23) == (
        "GPU busy 81 % of 10.0 s, waiting for builds 1.2 s; search 0.31 s, store 0.02 s"
    )


def test_several_gpus_are_told_one_by_one() -> None:
    line = told(total=10.0, device_busy=[8.1, 7.5], waiting_for_builds=0.0)
    assert line.startswith("GPUs busy 81 %, 75 % of 10.0 s")


def test_a_run_that_took_no_time_is_no_error() -> None:
    assert told(total=0.0, device_busy=[], waiting_for_builds=0.0).startswith("GPU busy 0 % of 0.0 s")


# The table


def printed(*trials: Any, width: int = 100) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width).print(results_table(frame(trials), width))
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_libraries_stand_among_the_configurations_by_time_and_without_a_rank() -> None:
    trials = [timed(n, float(n)) for n in range(1, 15)]
    _, _, *rows, _ = printed(*trials, library("cublas", 2.5), library("cublaslt", 0.5))
    assert [row.split()[0] for row in rows] == ["cublaslt", "1", "2", "cublas", *map(str, range(3, 11))]
    assert "100.0" in rows[0], "the better library is what others are compared with"
    assert "20.0" in rows[3]


def test_what_is_the_same_in_all_stands_above_and_what_is_left_out_is_counted_below() -> None:
    above, head, *rows, below = printed(*[timed(n, float(n)) for n in range(1, 15)])
    assert above == "all with vector=4"
    assert head.split()[:3] == ["rank", "tile", "time"]
    assert len(rows) == 10
    assert below == "4 more in trials.csv"


def test_one_configuration_has_all_its_parameters_in_its_row() -> None:
    head, row = printed(timed(1, 1.0))
    assert head.split()[:3] == ["rank", "tile", "vector"]
    assert row.split()[:3] == ["1", "8", "4"]


@pytest.mark.parametrize("width", [100, 80, 60])
@pytest.mark.parametrize(
    ("count", "name"), [(3, "tile"), (14, "cluster_"), (9, "a_rather_long_name_of_a_parameter_")]
)
def test_a_table_fits_its_width_whatever_it_is_of(width: int, count: int, name: str) -> None:
    trials = [
        timed(n, 1.0, 1.0, 1.01 + n, params={f"{name}{i}": i * n for i in range(1, count)})
        for n in range(1, 12)
    ]
    lines = printed(*trials, library("cublas", 2.5), width=width)
    assert max(map(len, lines)) <= width
    assert sum(" ms" in line or " s" in line for line in lines) >= 11, "a line a row, each with its time"


def test_a_merged_table_fits_too() -> None:
    trials = [
        timed(n, float(n), kernel=kernel, params={f"parameter_number_{i}": n * i for i in range(12)})
        for n in range(1, 4)
        for kernel in ("one_kernel", "another_kernel")
    ]
    text = io.StringIO()
    Console(file=text, width=100).print(merged_table(frame(trials), 100))
    lines = text.getvalue().splitlines()
    assert len(lines) == 1 + len(trials)
    assert max(map(len, lines)) <= 100


# How sure it is


def test_a_time_by_one_search_has_its_interval_and_those_that_are_not_told_from_it() -> None:
    near = [timed(n, *(1.0 + 0.001 * (i % 5) for i in range(40))) for n in (1, 2)]
    far = timed(3, *(2.0 + 0.001 * (i % 5) for i in range(40)))
    line = certainty(Tally(trials=[*near, far, library("cublas", 0.5)]))
    assert line is not None
    assert re.fullmatch(
        r"its median is known to ± 0\.\d+ % \(95 %\), 1 other not told from it; not confirmed", line
    )


def test_too_few_samples_give_no_interval() -> None:
    assert "too few for an interval" in str(certainty(Tally(trials=[timed(1, 1.0)])))


def test_a_prediction_is_called_one_and_those_alike_are_counted() -> None:
    line = certainty(Tally(trials=[predicted(1), predicted(2), predicted(3, predicted_ms=9.0)]))
    assert line == "predicted by the static model, 1 other alike: proved right, and never measured"


def test_nothing_valid_has_no_certainty() -> None:
    assert certainty(Tally(trials=[failed(1, Status.CRASH, "gone")])) is None


# What failed


def test_a_library_that_failed_is_no_row_and_its_reason_is_told() -> None:
    missing = library("cublaslt", 1.0, status=Status.INFEASIBLE, stage=Stage.SPACE, reason="not found")
    assert len(printed(timed(1, 1.0), missing)) == 2
    assert library_failures(Tally(trials=[timed(1, 1.0), missing])) == ["cublaslt: not found"]


def test_that_a_library_has_no_such_product_is_not_told() -> None:
    none = library("cublas", 1.0, status=Status.INFEASIBLE, stage=Stage.LAUNCH, reason="no equivalent")
    assert library_failures(Tally(trials=[none])) == []
