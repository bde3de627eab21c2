"""The fastest of several ways in which a library computes one problem.

Each is proved right once and glanced at: two samples, or the verified launch's own time where that is long.
The best few by that are measured as any configuration is, and the fastest of them stands for the library.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweeper.backend.base import MeasureProtocol
from sweeper.backend.cuda.cublas_baselines import Contender
from sweeper.backend.cuda.verification import Verification
from sweeper.errors import TrialFailed
from sweeper.model import Check, Timing

__all__ = ["GLANCE_SAMPLES", "LONG_GLANCE_MS", "Measured", "glance_protocol", "race", "seen_ms"]

GLANCE_SAMPLES = 2
LONG_GLANCE_MS = 1.0
"""A verified launch that takes this long is glance enough: what is in the cache does not matter to it."""

_FINALISTS = 3
# A glance is good to a few per cent: what is slower by more than this is not measured in full.
_MARGIN = 1.1

Measured = tuple[Check, Timing, str]
Glance = Callable[[Contender], float]
Measure = Callable[[Contender, MeasureProtocol], Measured]


@dataclass(frozen=True, slots=True)
class _Finalist:
    contender: Contender
    measured: Measured

    @property
    def median_ms(self) -> float:
        return statistics.median(self.measured[1].samples_ms)


@dataclass(frozen=True, slots=True)
class _Failure:
    contender: Contender
    failure: TrialFailed


def glance_protocol(protocol: MeasureProtocol) -> MeasureProtocol:
    """`protocol` with as few samples as tell fast from slow, of one cache state."""
    cache = "warm" if protocol.cache == "warm" else "cold"
    return replace(
        protocol,
        min_samples=GLANCE_SAMPLES,
        max_samples=GLANCE_SAMPLES,
        verify_launches=1,
        cache=cache,
        stop_above_ms=None,
    )


def seen_ms(verification: Verification) -> float | None:
    """What a verified launch took; one more where the driver was still loading the first one's code.

    Raises TrialFailed where a result is wrong.
    """
    for _ in range(2):
        verification.before_timing(1)
        if verification.launch_ms is not None:
            return verification.launch_ms
    return None


def race(
    contenders: Sequence[Contender], glance: Glance, measure: Measure, protocol: MeasureProtocol
) -> tuple[Measured, str, Mapping[str, Any]]:
    """The fastest of `contenders` by `measure`, with what a reader is told of it and of the others.

    A contender that fails (wrong results, not supported) is left out and counted by its status. Raises
    TrialFailed, the first one's, where all fail, and at once for a failure that the process cannot go on from.
    """
    if len(contenders) == 1:
        only = contenders[0]
        return measure(only, protocol), only.note, only.details
    failures: list[_Failure] = []
    times: list[tuple[float, int]] = []
    for place, contender in enumerate(contenders):
        try:
            times.append((glance(contender), place))
        except TrialFailed as failure:
            _keep(contender, failure, failures)
    best: _Finalist | None = None
    measured = 0
    for time_ms, place in sorted(times):
        if measured == _FINALISTS or (best is not None and time_ms > _MARGIN * min(times)[0]):
            break
        limited = protocol if best is None else replace(protocol, stop_above_ms=best.median_ms)
        try:
            found = _Finalist(contenders[place], measure(contenders[place], limited))
        except TrialFailed as failure:
            _keep(contenders[place], failure, failures)
            continue
        measured += 1
        if best is None or found.median_ms < best.median_ms:
            best = found
    if best is None:
        raise failures[0].failure
    told = _told(len(contenders), failures, measured)
    glances = {"glances_ms": [time_ms for time_ms, _ in sorted(times, key=lambda t: t[1])]}
    details = {**best.contender.details, **_counts(contenders, failures), **glances}
    return best.measured, f"{best.contender.note} ({told})", details


def _keep(contender: Contender, failure: TrialFailed, failures: list[_Failure]) -> None:
    if failure.details.get("sticky"):
        raise failure
    failures.append(_Failure(contender, failure))


def _counts(contenders: Sequence[Contender], failures: Sequence[_Failure]) -> dict[str, Any]:
    return {
        "proposed": len(contenders),
        "ran": len(contenders) - len(failures),
        "failed": dict(_statuses(failures)),
        "failures": [
            {"status": f.failure.status.value, "reason": f.failure.reason, "note": f.contender.note}
            for f in failures
        ],
    }


def _statuses(failures: Sequence[_Failure]) -> Counter[str]:
    return Counter(f.failure.status.value for f in failures)


def _told(proposed: int, failures: Sequence[_Failure], measured: int) -> str:
    ran = proposed - len(failures)
    why = "".join(f", {count} {status}" for status, count in _statuses(failures).items())
    return f"best of {ran} that ran of {proposed}{why}; {measured} measured in full"
