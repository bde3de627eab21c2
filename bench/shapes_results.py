"""What a shape came to, as rows of two tables: the best of all rungs beside the libraries, and the best of each."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from sweeper.device import Target
from sweeper.dtypes import dtype
from sweeper.model import Confirmed, Role, Status, Trial
from sweeper.resources import roofline
from sweeper.statistics import RatioInterval, median_interval, paired_log_ratio, verdict
from sweeper.table.row import time_ms
from sweeper.table.standings import Standing

__all__ = ["Final", "Found", "Work", "best_of", "rung_rows", "searched_rows", "shape_row", "warm_columns"]

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Work:
    """FLOP and compulsory bytes of a problem, in a precision class, on a device."""

    flops: float
    bytes: float | None
    dtype: str
    target: Target

    def columns(self, time_ms: float) -> Row:
        """Rates of `time_ms`: the share of the peak, and where memory is the limit that of a copy's bandwidth."""
        precision = dtype(self.dtype)
        row: Row = {
            "tflops": roofline.gflops(self.flops, time_ms) / 1e3,
            "percent_of_peak": roofline.percent_of_peak(self.flops, time_ms, precision, self.target),
        }
        compute = roofline.roofline_ms(self.flops, None, precision, self.target) or 0.0
        memory = roofline.roofline_ms(None, self.bytes, precision, self.target) or 0.0
        if memory > compute:
            row["percent_of_copy"] = roofline.percent_of_roofline(time_ms, memory)
        return row


@dataclass(frozen=True, slots=True)
class Final:
    """The winner of a rung's confirmation, with its opponents' times of the same blocks, by library.

    `better` is the faster library, `ratio` its time ÷ the winner's; both empty where no library ran.
    """

    params: Mapping[str, Any]
    blocks_ms: tuple[float, ...]
    libraries: Mapping[str, Sequence[float]]
    notes: Mapping[str, str]
    better: str = ""
    ratio: RatioInterval | None = None
    verdict: str = "no library ran"

    @classmethod
    def of(cls, winner: Standing, finals: Sequence[Confirmed]) -> Self:
        one = winner.confirmed
        libraries = {each.kernel: each for each in finals if each.role is Role.BASELINE}
        ran = {name: each.blocks_ms for name, each in libraries.items() if not each.reason}
        notes = {name: each.note or each.reason for name, each in libraries.items()}
        against = {name: each for name, each in (winner.against or {}).items() if name in ran}
        first = cls(dict(one.params), one.blocks_ms, ran, notes)
        if not against:
            return first
        better = max(against, key=lambda name: against[name].ratio.ratio)
        ours = against[better].ratio
        ratio = RatioInterval(1 / ours.ratio, 1 / ours.high, 1 / ours.low, ours.blocks)
        return cls(first.params, one.blocks_ms, ran, notes, better, ratio, against[better].verdict.value)

    @property
    def time_ms(self) -> float:
        return statistics.median(self.blocks_ms)


@dataclass(frozen=True, slots=True)
class Found:
    """What a rung came to: the best of its search, and the winner of its confirmation where there was one."""

    kernel: str
    reason: str = ""
    evaluations: int = 0
    valid: int = 0
    params: Mapping[str, Any] | None = None
    samples_ms: tuple[float, ...] = ()
    final: Final | None = None
    searched: tuple[tuple[Mapping[str, Any], float], ...] = ()
    """Every configuration that ran, with its median."""

    @classmethod
    def of(cls, kernel: str, trials: Sequence[Trial]) -> Self:
        candidates = [trial for trial in trials if trial.role is Role.CANDIDATE]
        timed = [t for t in candidates if t.status is Status.OK and time_ms(t) is not None]
        if not timed:
            reasons = [trial.reason for trial in candidates if trial.reason]
            return cls(
                kernel, f"nothing ran: {reasons[0] if reasons else 'nothing was tried'}", len(candidates)
            )
        best = min(timed, key=lambda trial: time_ms(trial) or math.inf)
        samples = best.timing.samples_ms if best.timing else ()
        every = tuple((dict(trial.params), time_ms(trial) or math.inf) for trial in timed)
        return cls(kernel, "", len(candidates), len(timed), dict(best.params), samples, None, every)

    @property
    def searched_ms(self) -> float:
        return statistics.median(self.samples_ms) if self.samples_ms else math.inf


def best_of(found: Sequence[Found]) -> int | None:
    """The place of the rung that does best; None where none ran.

    Confirmed ones go before others. Of two that met a library each in a confirmation of their own, the better
    ratio is the better one: what drifted between the two is not in it.
    """

    def key(place: int) -> tuple[int, float]:
        one = found[place]
        if one.final is None:
            return (2, one.searched_ms)
        if one.final.ratio is not None:
            return (0, -one.final.ratio.ratio)
        return (1, one.final.time_ms)

    ran = [place for place, one in enumerate(found) if math.isfinite(one.searched_ms)]
    return min(ran, key=key, default=None)


def shape_row(shape: str, work: Work, found: Sequence[Found], best: int | None) -> Row:
    """The row of the best rung beside the libraries."""
    row: Row = {"shape": shape, "dtype": work.dtype, "evaluations": sum(one.evaluations for one in found)}
    if best is None:
        reasons = "; ".join(f"{one.kernel}: {one.reason}" for one in found if one.reason)
        return {**row, "verdict": "nothing ran", "note": reasons}
    return {**row, **_columns(found[best], work)}


def rung_rows(shape: str, work: Work, found: Sequence[Found], best: int | None) -> list[Row]:
    """The best configuration of every rung; a reason where there is none."""
    return [
        {
            "shape": shape,
            "dtype": work.dtype,
            "best": place == best,
            "evaluations": one.evaluations,
            "valid": one.valid,
            **_columns(one, work),
        }
        for place, one in enumerate(found)
    ]


def searched_rows(shape: str, work: Work, found: Sequence[Found]) -> list[Row]:
    """Every configuration that ran, once each."""
    return [
        {
            "shape": shape,
            "dtype": work.dtype,
            "kernel": one.kernel,
            "params": json.dumps(dict(params), sort_keys=True),
            "timed": "in the search",
            "time_ms": time_ms,
        }
        for one in found
        for params, time_ms in one.searched
    ]


def _columns(one: Found, work: Work) -> Row:
    row: Row = {"kernel": one.kernel}
    if one.final is not None:
        times, params = one.final.blocks_ms, one.final.params
        row |= {"timed": "in turns", "blocks": len(times), **_opponents(one.final)}
    elif one.samples_ms and one.params is not None:
        times, params = one.samples_ms, one.params
        row |= {"timed": "in the search", "verdict": "not confirmed"}
    else:
        return {**row, "verdict": "did not run", "note": one.reason}
    interval = median_interval(times)
    median = statistics.median(times)
    row |= {
        "params": json.dumps(dict(params), sort_keys=True),
        "time_ms": median,
        "time_low_ms": interval.low,
        "time_high_ms": interval.high,
    }
    # Too few samples or blocks have no interval: a blank.
    return {name: value for name, value in {**row, **work.columns(median)}.items() if not _is_nan(value)}


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _opponents(final: Final) -> Row:
    row: Row = {f"{name}_ms": statistics.median(times) for name, times in final.libraries.items()}
    row |= {"verdict": final.verdict, "better_library": final.better}
    row["note"] = "; ".join(f"{name}: {note}" for name, note in final.notes.items() if note)
    return {**row, **(_interval("ratio", final.ratio) if final.ratio else {})}


def _interval(name: str, ratio: RatioInterval) -> Row:
    return {name: ratio.ratio, f"{name}_low": ratio.low, f"{name}_high": ratio.high}


def warm_columns(warm: Mapping[str, Sequence[float]], kernel: str, least_effect: float) -> Row:
    """Columns of the times with a warm L2 that the best and the libraries gave in turns."""
    ours = warm.get(kernel, ())
    if not ours:
        return {}
    row: Row = {"warm_ms": statistics.median(ours)}
    against = {
        name: paired_log_ratio(times, ours) for name, times in warm.items() if name != kernel and times
    }
    row |= {f"{name}_warm_ms": statistics.median(warm[name]) for name in against}
    if not against:
        return row
    # The library's time over ours: the less, the better the library.
    ratio = min(against.values(), key=lambda one: one.ratio)
    swapped = RatioInterval(1 / ratio.ratio, 1 / ratio.high, 1 / ratio.low, ratio.blocks)
    return {**row, **_interval("warm_ratio", ratio), "warm_verdict": verdict(swapped, least_effect).value}
