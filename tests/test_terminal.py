"""What a person is told at the end of a run."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console
from test_table import library, timed

from sweeper.cli.terminal import library_failures, results_table, where_time_went
from sweeper.model import Stage, Status
from sweeper.table import frame
from sweeper.tune import Tally


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


def printed(*trials: Any) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=200).print(results_table(frame(trials)))
    return text.getvalue().splitlines()


def test_libraries_stand_among_the_configurations_by_time_and_without_a_rank() -> None:
    trials = [timed(n, float(n)) for n in range(1, 15)]
    _, *rows = printed(*trials, library("cublas", 2.5), library("cublaslt", 0.5))
    assert [row.split()[0] for row in rows] == ["cublaslt", "1", "2", "cublas", *map(str, range(3, 11))]
    assert "100.0" in rows[0], "the better library is what others are compared with"
    assert "20.0" in rows[3]


def test_a_library_that_failed_is_no_row_and_its_reason_is_told() -> None:
    missing = library("cublaslt", 1.0, status=Status.INFEASIBLE, stage=Stage.SPACE, reason="not found")
    assert len(printed(timed(1, 1.0), missing)) == 2
    assert library_failures(Tally(trials=[timed(1, 1.0), missing])) == ["cublaslt: not found"]


def test_that_a_library_has_no_such_product_is_not_told() -> None:
    none = library("cublas", 1.0, status=Status.INFEASIBLE, stage=Stage.LAUNCH, reason="no equivalent")
    assert library_failures(Tally(trials=[none])) == []
