"""What a person is told at the end of a run."""

from __future__ import annotations

from typing import Any

from sweeper.cli.terminal import where_time_went
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
