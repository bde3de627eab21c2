"""Finalists timed in turns on one device, whatever one of them does to its process."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from sweeper.backend.base import Finalist, MeasureProtocol, Rounds, Turns
from sweeper.device import DeviceIdentity
from sweeper.errors import TrialFailed
from sweeper.worker.base import Worker

__all__ = ["FinalsTicket", "turns_of"]


@dataclass(slots=True, eq=False)
class FinalsTicket:
    """Finalists on their way to turns; `device` is the one that ran them last."""

    finalists: Sequence[Finalist]
    rounds: Rounds
    turns: Future[tuple[Turns, ...]] = field(default_factory=Future)
    device: DeviceIdentity | None = None


def turns_of(
    worker: Worker, finalists: Sequence[Finalist], protocol: MeasureProtocol, rounds: Rounds
) -> tuple[Turns, ...]:
    """The turns of all finalists. One that takes the process down is left out, and the others begin again.

    Where it is not known which one that was, each is run by itself to find it. Raises TrialFailed where
    none of them can be blamed, and SetupError.
    """
    out: dict[int, str] = {}
    while True:
        left = [place for place in range(len(finalists)) if place not in out]
        if not left:
            return tuple(Turns(reason=out[place]) for place in range(len(finalists)))
        try:
            turns = iter(worker.confirm([finalists[place] for place in left], protocol, rounds))
        except TrialFailed as failure:
            known = failure.details.get("entrant")
            if known is not None:
                out[left[known]] = failure.reason
                continue
            culprit = _culprit(worker, finalists, left, protocol)
            if culprit is None:
                raise
            out[culprit[0]] = culprit[1].reason
            continue
        return tuple(
            Turns(reason=out[place]) if place in out else next(turns) for place in range(len(finalists))
        )


def _culprit(
    worker: Worker, finalists: Sequence[Finalist], left: Sequence[int], protocol: MeasureProtocol
) -> tuple[int, TrialFailed] | None:
    """The first that fails when it is run alone, and how it does."""
    once = replace(protocol, min_samples=1, max_samples=1)
    for place in left:
        finalist = finalists[place]
        try:
            if finalist.library is not None:
                worker.baseline(finalist.library, once)
            elif finalist.point is not None and finalist.build is not None:
                worker.measure(finalist.point, finalist.build, once)
        except TrialFailed as failure:
            return place, failure
    return None
