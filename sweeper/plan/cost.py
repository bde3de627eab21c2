"""What a configuration, a library, a confirmation and a job cost in seconds, in closed form.

The constants were fitted to runs on NVIDIA H200s (results/h200, driver 580, 16 cores); `bench/bench_plan.py` fits
them again and says how far they are off.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "BUILD_S",
    "CHECKED_LAUNCHES",
    "DRIVER_S",
    "JOB_S",
    "LIBRARY_S",
    "START_S",
    "Protocol",
    "expected_samples",
    "measuring_s",
    "turns_s",
]

# Loading, guards, comparison and digests of a configuration whose launches take nothing: least squares over 402
# rows of results/h200 (relative errors), a tenth of them the recorded spaces'.
_CONFIGURATION_S = 4.3e-3
_S_PER_BYTE = 32e-3 / 1e9
_SAMPLE_S = 0.11e-3
CHECKED_LAUNCHES = 3
"""Launches beside the timed ones: a configuration is proved right twice before these and once after them."""
# A median's interval takes 6 samples.
_LEAST_SAMPLES = 6
# Of the samples that the protocol asks for, those that are left where slow configurations are not sampled in full:
# 8.5 of 10 (results/h200/rungs-large), 5.2 of 6 (ladder-course).
_STOPPED_EARLY = 0.86

BUILD_S = 0.7
"""Seconds of one core for a configuration of a kernel that was never built: nvcc 0.68 (results/h200/throughput.csv)."""
DRIVER_S = 5e-3
"""What a search takes for a configuration beside device and compilers: 5.2 ms (results/h200/throughput.csv)."""
LIBRARY_S = 0.8
"""A library beside the kernel, most of it its loading: 0.63 to 0.95 s (results/h200/*/study.db)."""
JOB_S = 2.1
"""A job of a multirun beside its search: composing, the process that owns the device, the inputs, the tables."""
START_S = 1.0
"""A command beside its jobs."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """What of a measuring protocol decides how long a configuration takes."""

    min_samples: int = 10
    max_samples: int = 100
    max_seconds: float = 1.0
    stops_early: bool = True
    both_caches: bool = False
    energy_s: float = 0.0


def expected_samples(protocol: Protocol, launch_s: float) -> float:
    """How many samples a configuration takes whose launch takes `launch_s` seconds, a mean over a search's."""
    wanted = min(max(protocol.min_samples, _LEAST_SAMPLES), protocol.max_samples)
    count = wanted * (_STOPPED_EARLY if protocol.stops_early else 1.0)
    return max(1.0, min(count, protocol.max_seconds / launch_s if launch_s > 0 else count))


def measuring_s(launch_s: float, samples: float, bytes_: int, protocol: Protocol = Protocol()) -> float:
    """Seconds of a device to prove a configuration right and to time it.

    `launch_s` is what a launch takes, `bytes_` what the problem's arrays hold.
    """
    rounds = 2 if protocol.both_caches else 1
    timed = rounds * samples * (launch_s + _SAMPLE_S) + protocol.energy_s
    return _CONFIGURATION_S + _S_PER_BYTE * bytes_ + CHECKED_LAUNCHES * launch_s + timed


def turns_s(entrants: int, blocks: int, launch_s: float, bytes_: int) -> float:
    """Seconds of a device to time `entrants` in turns, `blocks` times each, after each is proved right again."""
    return entrants * measuring_s(launch_s, blocks, bytes_)
