"""Rates, and how fast a device can be at most: GFLOP/s, roofline, and times too good to be true.

The roofline (Williams, Waterman and Patterson, CACM 52(4), 2009) takes compulsory traffic: each input
read once, each output written once.
"""

from __future__ import annotations

import math

from sweeper.device import Target
from sweeper.dtypes import DType

__all__ = ["gflops", "percent_of_peak", "percent_of_roofline", "roofline_ms", "suspect"]


def gflops(flops: float, time_ms: float) -> float:
    """10⁹ FLOP/s of `flops` done in `time_ms`; NaN where the time is no time (zero, negative, NaN)."""
    return flops / (time_ms * 1e6) if time_ms > 0 else math.nan


def roofline_ms(
    flops: float | None,
    bytes: float | None,  # noqa: A002 - the name of the column
    dtype: DType,
    target: Target,
) -> float | None:
    """The least time for `flops` in `dtype` and `bytes` of memory traffic; None where neither is known.

    Peak rate of the fastest unit at the highest clock, and the bandwidth that a copy reaches.
    """
    if flops is None and bytes is None:
        return None
    compute = (flops or 0) / (target.peak_gflops(dtype.name) * 1e6)
    memory = (bytes or 0) / (target.bandwidth_gbs * 1e6)
    return max(compute, memory)


def percent_of_roofline(time_ms: float, roofline_ms: float | None) -> float | None:
    """100 where `time_ms` is the roofline's; None where either is unknown."""
    if roofline_ms is None or not time_ms > 0:
        return None
    return 100 * roofline_ms / time_ms


def percent_of_peak(flops: float | None, time_ms: float, dtype: DType, target: Target) -> float | None:
    """The share of the device's peak rate in `dtype`, in percent; None where the work is unknown."""
    if flops is None or not time_ms > 0:
        return None
    return 100 * gflops(flops, time_ms) / target.peak_gflops(dtype.name)


def suspect(
    flops: float | None,
    bytes: float | None,  # noqa: A002 - the name of the column
    time_ms: float,
    dtype: DType,
    target: Target,
    *,
    cold_bytes: float = 0,
) -> str | None:
    """Why a measured time cannot be true of this work on this device; None where it can.

    Such a kernel skips work, or such a clock does not measure it. Judged against the pins' bandwidth,
    not a copy's, and only for traffic that cannot stay in the L2 cache, so that a warm cache or one that
    keeps the output back is no lie: what the cache is too small for, and at least `cold_bytes`, which is
    all that a launch reads where the cache was flushed before.
    """
    if not (math.isfinite(time_ms) and time_ms > 0):
        return f"a time of {time_ms} ms"
    rate, peak = gflops(flops or 0, time_ms), target.peak_gflops(dtype.name)
    if rate > peak:
        return f"{rate:,.0f} GFLOP/s is above the device's {peak:,.0f} in {dtype.name}"
    beyond_l2 = max(cold_bytes, (bytes or 0) - target.l2_bytes)
    bandwidth, pins = beyond_l2 / (time_ms * 1e6), target.peak_bandwidth_gbs or target.bandwidth_gbs
    if bandwidth > pins:
        return f"{bandwidth:,.0f} GB/s past the L2 cache is above the device's {pins:,.0f}"
    return None
