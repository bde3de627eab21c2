"""Seconds of devices and of the clock that a job will take, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sweeper.plan.cost import (
    BUILD_S,
    DRIVER_S,
    JOB_S,
    LIBRARY_S,
    Protocol,
    expected_samples,
    measuring_s,
    turns_s,
)
from sweeper.plan.rates import Rate, nearest

__all__ = ["Estimated", "Planned", "Seconds", "Work", "estimated"]

# Nine of ten recorded studies of 8 configurations or more lie within a factor 1.6 (same sizes, other search), 1.4
# (other sizes) and 1.5 (static model) of what is estimated without their own rows, and of all within 2.5: see
# `bench/bench_plan.py`. The static model's is wider here, since its constants are fitted to the same runs.
_SAME, _OTHER_SIZES, _PREDICTED = 1.6, 1.6, 2.2
_BUILT, _NEVER_BUILT = 1.5, 2.5
_FEW = 8


@dataclass(frozen=True, slots=True)
class Seconds:
    """An estimate: nine of ten lie between `low` and `high`."""

    low: float = 0.0
    likely: float = 0.0
    high: float = 0.0

    def __add__(self, other: Seconds) -> Seconds:
        """The sum, as if both erred the same way."""
        return Seconds(self.low + other.low, self.likely + other.likely, self.high + other.high)

    def times(self, factor: float) -> Seconds:
        return Seconds(self.low * factor, self.likely * factor, self.high * factor)

    @classmethod
    def within(cls, likely: float, factor: float) -> Seconds:
        return cls(likely / factor, likely, likely * factor)


@dataclass(frozen=True, slots=True)
class Work:
    """One study that a job will search.

    `feasible` configurations of `product`; `evaluations` of them are asked, of which `stored` have a row already;
    `libraries` are to be timed beside them, and `entrants` in turns after the search, `blocks` times each.
    `predicted_s` is the static model's launch time (the median of the space; None where it has none), `bytes` what
    the arrays hold. `predict` gives the same of other sizes.
    """

    kernel: str
    dtype: str
    shape: str
    dims: Mapping[str, int]
    feasible: int
    product: int
    evaluations: int
    stored: int = 0
    libraries: int = 0
    entrants: int = 0
    blocks: int = 0
    bytes: int = 0
    predicted_s: float | None = None
    predict: Callable[[Mapping[str, int]], float | None] = field(
        default=lambda _: None, repr=False, compare=False
    )

    @property
    def left(self) -> int:
        """Configurations that have to be measured."""
        return self.evaluations - self.stored


@dataclass(frozen=True, slots=True)
class Planned:
    """A job: what was `asked` of it, its studies, the `devices` that serve it and the `workers` that build for it.

    `on_gpu` is false where nothing of it runs on one; `error` says why it will not run at all.
    """

    number: int
    asked: str
    works: Sequence[Work] = ()
    protocol: Protocol = field(default_factory=Protocol)
    devices: int = 1
    workers: int = 1
    on_gpu: bool = True
    error: str = ""


@dataclass(frozen=True, slots=True)
class Estimated:
    """A job with what it will take.

    `wall` is from its beginning to its end, `gpu` the seconds that its GPUs are held, `device` those that they work,
    `build` seconds of cores. `sources` say what the estimate is made from, one a study. `known` is false where
    nothing says how long a launch takes.
    """

    job: Planned
    wall: Seconds = Seconds()
    gpu: Seconds = Seconds()
    device: Seconds = Seconds()
    build: Seconds = Seconds()
    sources: tuple[str, ...] = ()
    known: bool = True


def estimated(job: Planned, rates: Sequence[Rate] = ()) -> Estimated:
    """What `job` will take by the nearest of `rates`, and by the static model where there is none."""
    if job.error or not job.on_gpu:
        return Estimated(job)
    searching, alone, build = Seconds(), Seconds(), Seconds()
    sources = []
    known = True
    for work in job.works:
        one = _of(work, job.protocol, rates)
        known = known and one.known
        sources.append(one.source)
        searching += one.configuration.times(work.left) + Seconds.within(work.libraries * LIBRARY_S, 1.3)
        alone += one.turns
        build += one.build.times(work.left)
    left = sum(work.left for work in job.works)
    first = build.times(1 / left) if left else Seconds()
    busy = _longer(searching.times(1 / job.devices), build.times(1 / job.workers))
    beside = Seconds.within(JOB_S + DRIVER_S * left, 1.3)
    wall = beside + first + busy + alone
    return Estimated(
        job, wall, wall.times(job.devices), searching + alone, build, tuple(sources), known=known
    )


@dataclass(frozen=True, slots=True)
class _Costs:
    configuration: Seconds
    build: Seconds
    turns: Seconds
    source: str
    known: bool = True


def _of(work: Work, protocol: Protocol, rates: Sequence[Rate]) -> _Costs:
    near = nearest(rates, work.kernel, work.dtype, work.dims)
    built = next((rate.build_s for rate in near if rate.build_s is not None), None)
    build = Seconds.within(BUILD_S, _NEVER_BUILT) if built is None else Seconds.within(built, _BUILT)
    for rate in near:
        same = dict(rate.dims) == dict(work.dims)
        grown = 1.0 if same else _grown(work, rate)
        if grown is None:
            continue
        launch_s = rate.launch_s * grown
        samples = rate.samples if _like(protocol, rate) else expected_samples(protocol, launch_s)
        # What this kernel took beside its launches there, it takes here; few rows say little of that.
        few = rate.rows < _FEW
        likely = measuring_s(launch_s, samples, work.bytes if few else 0, protocol) * (
            1.0 if few else rate.beside
        )
        sure = _SAME if same else _OTHER_SIZES
        turns = _turns(work, launch_s, sure)
        sizes = "" if same else " at " + "x".join(map(str, rate.dims.values()))
        return _Costs(Seconds.within(likely, sure), build, turns, f"{rate.source}{sizes}")
    if work.predicted_s is None:
        return _Costs(Seconds(), build, Seconds(), "nothing", known=not work.left)
    samples = expected_samples(protocol, work.predicted_s)
    likely = measuring_s(work.predicted_s, samples, work.bytes, protocol)
    return _Costs(
        Seconds.within(likely, _PREDICTED),
        build,
        _turns(work, work.predicted_s, _PREDICTED),
        "static model",
    )


def _grown(work: Work, rate: Rate) -> float | None:
    """How many times as long a launch takes here as there, by the static model, which need not be right for that."""
    there = work.predict(rate.dims)
    if work.predicted_s is None or there is None or there <= 0:
        return None
    return work.predicted_s / there


def _like(protocol: Protocol, rate: Rate) -> bool:
    """Whether the protocol would have taken about as many samples as were taken."""
    expected = expected_samples(protocol, rate.launch_s)
    return abs(math.log(expected / rate.samples)) < math.log(1.5) and not protocol.both_caches


def _turns(work: Work, launch_s: float, sure: float) -> Seconds:
    if work.entrants < 2 or not work.blocks:
        return Seconds()
    return Seconds.within(turns_s(work.entrants, work.blocks, launch_s, work.bytes), sure)


def _longer(one: Seconds, other: Seconds) -> Seconds:
    return Seconds(*(max(pair) for pair in zip(_three(one), _three(other), strict=True)))


def _three(seconds: Seconds) -> tuple[float, float, float]:
    return seconds.low, seconds.likely, seconds.high
