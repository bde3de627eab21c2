"""The roofline as a report: what bounds a kernel at a shape, and how much of that it reaches."""

from __future__ import annotations

from typing import Any

import pytest
from test_table import library, timed

from sweeper.cli.roofline_text import bars, grid
from sweeper.device import TARGETS
from sweeper.lessons.roofline import roofs
from sweeper.table import frame

H200 = TARGETS["h200"]
FACTS = [{"study": "gemm-float32-large-12345678", "target": "NVIDIA H200"}]


def spot(flops: int, size: int, time_ms: float, **changes: Any) -> Any:
    (roof,) = roofs(frame([timed(1, time_ms, flops=flops, bytes=size, **changes)]), [], FACTS)
    (only,) = roof.spots
    return only


def test_below_the_ridge_the_memory_is_the_roof() -> None:
    least_ms = 10**9 / (H200.bandwidth_gbs * 1e6)
    one = spot(10**9, 10**9, 2 * least_ms)
    assert (one.bound, one.intensity) == ("memory", 1.0)
    assert one.percent == pytest.approx(50)
    assert one.gbs == pytest.approx(H200.bandwidth_gbs / 2)
    assert one.roof_gflops == pytest.approx(H200.bandwidth_gbs)


def test_above_it_arithmetic_is() -> None:
    peak = H200.peak_gflops("float32")
    one = spot(10**12, 10**9, 1e12 / (peak * 1e6))
    assert one.bound == "arithmetic"
    assert one.percent == pytest.approx(100)


def test_the_least_intensity_stands_first_and_libraries_are_no_spots() -> None:
    trials = [timed(n, 1.0, shape=f"s{n}", flops=10 ** (9 + n), bytes=10**9) for n in (2, 1)]
    (roof,) = roofs(frame([*trials, library("cublas", 0.5)]), [], FACTS)
    assert [one.shape for one in roof.spots] == ["s1", "s2"]


def test_a_device_that_no_table_knows_and_work_that_nobody_counted_have_no_roof() -> None:
    assert roofs(frame([timed(1, 1.0)]), [], [{**FACTS[0], "target": "GT 9000"}]) == []
    assert roofs(frame([timed(1, 1.0, flops=None)]), [], FACTS) == []


@pytest.mark.parametrize("width", [60, 100])
def test_bars_fit_and_are_full_at_the_roof(width: int) -> None:
    peak = H200.peak_gflops("float32")
    trials = [
        timed(1, 1e12 / (peak * 1e6), shape="at", flops=10**12, bytes=10**9),
        timed(2, 2e12 / (peak * 1e6), shape="half", flops=10**12, bytes=10**9),
    ]
    (roof,) = roofs(frame(trials), [], FACTS)
    lines = dict(zip((one.shape for one in roof.spots), bars(roof, width), strict=True))
    assert all(len(line) <= width for line in lines.values())
    assert "·" not in lines["at"]
    assert lines["half"].count("█") == pytest.approx(lines["half"].count("·"), abs=1)
    assert len(grid(roof).rows) == 2
