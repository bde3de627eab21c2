"""After a search: its finalists, the kernel's default configuration and the libraries, timed once more in turns.

The best of many is the luckiest of many: the samples that chose it say too much in its favour. So the few
best are measured afresh, on one device, in blocks of random order, and only those times are compared.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from sweeper.backend.base import Finalist, Rounds, Turns
from sweeper.device import DeviceIdentity
from sweeper.errors import SetupError, TrialFailed
from sweeper.model import Confirmed, Point, Role, Status, TimeSource, Trial
from sweeper.space import Space
from sweeper.table.row import time_ms
from sweeper.table.standings import winner_of
from sweeper.tune.asked import Asked
from sweeper.tune.loop import Tally
from sweeper.tune.study import Study

__all__ = ["Confirmation", "Keeper", "confirm"]

# Blocks that are asked for at once, and are on the disk before the next ones begin.
_BLOCKS_AT_ONCE = 4
_SECONDS_AT_ONCE = 30.0


class Keeper(Protocol):
    """Where confirmations go, and where earlier ones of the study are found."""

    def confirmed(self) -> list[Confirmed]:
        """What was confirmed before under the study's own conditions, if that may be used."""
        ...

    def keep(self, confirmed: Sequence[Confirmed]) -> None:
        """Make all of one confirmation durable, in the place of what was kept of it before."""
        ...

    def add(self, trial: Trial) -> Trial:
        """Make `trial` durable, numbered within its study, and give it back."""
        ...


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What came of it: everyone's blocks, or `why_not` there are fewer than asked for.

    Nothing at all where there was nothing to compare. `reused`: an earlier run has measured them.
    """

    confirmed: tuple[Confirmed, ...] = ()
    why_not: str = ""
    reused: bool = False


def confirm(
    study: Study,
    space: Space,
    tally: Tally,
    keeper: Keeper,
    *,
    finalists: int,
    blocks: int,
    least_effect: float,
) -> Confirmation:
    """Time the best `finalists` configurations of `tally`, the default one and the libraries in turns.

    The default is among them where it is feasible and is not known to fail, asked by the search or not; a
    default that wins and was not asked becomes a trial, beyond the budget. A configuration that fails is
    reported, and the others go on. What is measured is kept after every few blocks.
    Raises StorageError.
    """
    if finalists > 0 and study.objective == "energy":
        return Confirmation(why_not="finalists are compared by their times, and the objective is energy")
    if finalists < 1 or study.evaluator.time_source is not TimeSource.MEASURED:
        return Confirmation()
    entered = _entered(study, space, tally, finalists, blocks, least_effect)
    if len(entered) < 2 or not any(one.role is Role.CANDIDATE for one in entered):
        return Confirmation()
    earlier = _earlier(study, keeper, entered)
    if earlier:
        return Confirmation(earlier, reused=True)
    began = time.monotonic()
    confirmation = _Turns(study, tally, keeper, entered).taken(blocks)
    _make_trial_of_winner(study, tally, keeper, confirmation.confirmed)
    tally.seconds["confirm"] = time.monotonic() - began
    return confirmation


def _entered(
    study: Study, space: Space, tally: Tally, finalists: int, blocks: int, least_effect: float
) -> list[Confirmed]:
    """Those that are to be timed: the best few, the default configuration, the libraries that ran."""
    ranked = _timed(tally, Role.CANDIDATE)
    default = study.spec.default_point
    points = [trial.point for trial in ranked[:finalists]]
    failed = any(t.point.key == default.key and t.status is not Status.OK for t in tally.trials)
    if default.key not in {point.key for point in points} and not failed and space.row(default) is not None:
        points.append(default)
    first = Confirmed(
        confirmation=uuid.uuid4().hex,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        study=study.name,
        kernel=study.spec.name,
        dtype=study.spec.dtype.name,
        shape=study.shape,
        params={},
        wanted=blocks,
        least_effect=least_effect,
        cache="warm" if study.protocol.get("cache") == "warm" else "cold",
    )
    entered = [replace(first, params=p.params, is_default=p.key == default.key) for p in points]
    libraries = {trial.kernel: trial for trial in _timed(tally, Role.BASELINE)}
    return entered + [
        replace(first, kernel=name, params=dict(trial.params), role=Role.BASELINE)
        for name, trial in libraries.items()
    ]


def _timed(tally: Tally, role: Role) -> list[Trial]:
    """The valid trials of `role` that were timed, the fastest first, each configuration once."""
    timed = [
        (value, place)
        for place, trial in enumerate(tally.trials)
        if trial.role is role and trial.status is Status.OK and trial.timing is not None
        if (value := time_ms(trial)) is not None
    ]
    found: dict[str, Trial] = {}
    for _, place in sorted(timed):
        found.setdefault(tally.trials[place].point.key, tally.trials[place])
    return list(found.values())


def _earlier(study: Study, keeper: Keeper, entered: Sequence[Confirmed]) -> tuple[Confirmed, ...]:
    """An earlier confirmation of just these, with as many blocks, on a device that serves; else nothing."""
    uuids = {device.uuid for device in study.evaluator.devices}
    groups: dict[str, list[Confirmed]] = {}
    for one in keeper.confirmed():
        groups.setdefault(one.confirmation, []).append(one)
    for group in reversed(groups.values()):
        same = {one.key for one in group} == {one.key for one in entered}
        judged = group[0].least_effect == entered[0].least_effect
        whole = all(one.reason or len(one.blocks_ms) >= entered[0].wanted for one in group)
        if same and judged and whole and all(one.device_uuid in uuids for one in group):
            return tuple(group)
    return ()


class _Turns:
    """A confirmation under way."""

    def __init__(self, study: Study, tally: Tally, keeper: Keeper, entered: Sequence[Confirmed]) -> None:
        self._study = study
        self._tally = tally
        self._keeper = keeper
        self._confirmed = list(entered)

    def taken(self, blocks: int) -> Confirmation:
        try:
            why_not = self._take(blocks)
        except (TrialFailed, SetupError) as error:
            why_not = error.reason if isinstance(error, TrialFailed) else error.message
        return Confirmation(tuple(self._confirmed), why_not)

    def _take(self, blocks: int) -> str:
        """Why there are fewer than `blocks` blocks, if there are."""
        finalists = self._finalists()
        done = 0
        while done < blocks and len(finalists) > 1:
            count = min(_BLOCKS_AT_ONCE, blocks - done)
            rounds = Rounds(count, first=done, seed=self._study.seed, seconds=_SECONDS_AT_ONCE)
            answer = self._study.evaluator.confirm([f for _, f in finalists], rounds)
            if answer is None:
                return "nothing is timed here"
            turns, device = answer
            for (place, _), each in zip(finalists, turns, strict=True):
                self._confirmed[place] = _after(self._confirmed[place], each, device)
            self._keeper.keep(self._confirmed)
            got = max(len(each.times_ms) for each in turns)
            done += got
            finalists = [(place, f) for place, f in finalists if not self._confirmed[place].reason]
            if got < count and len(finalists) > 1:
                return f"{done} of {blocks} blocks: more would take too long"
        return ""

    def _finalists(self) -> list[tuple[int, Finalist]]:
        """Those that can run, each with its place."""
        trials = {(trial.role, trial.point.key): trial for trial in self._tally.trials}
        places = [i for i, one in enumerate(self._confirmed) if one.role is Role.CANDIDATE]
        points = [Point.of(dict(self._confirmed[i].params)) for i in places]
        built = dict(zip(places, self._study.evaluator.finalists(points), strict=True))
        found: list[tuple[int, Finalist]] = []
        for place, one in enumerate(self._confirmed):
            finalist = built.get(place)
            if isinstance(finalist, TrialFailed):
                self._confirmed[place] = replace(one, reason=finalist.reason)
            elif finalist is not None:
                found.append((place, finalist))
            else:
                chosen: Any = trials[one.key].details.get("library", {})
                found.append((place, Finalist(library=one.kernel, chosen=chosen)))
        return found


def _after(one: Confirmed, turns: Turns, device: DeviceIdentity) -> Confirmed:
    """`one` with what it gave this time."""
    build, launch = turns.build, turns.launch
    if build is not None and launch is not None:
        shared = launch.shared_bytes + (build.static_shared_bytes or 0)
        one = replace(one, registers=build.registers, shared_bytes=shared, threads=launch.threads)
    notes = dict.fromkeys(filter(None, (*one.note.split("; "), *turns.note.split("; "))))
    return replace(
        one,
        blocks_ms=(*one.blocks_ms, *turns.times_ms),
        held_ms=(*one.held_ms, *turns.held_ms),
        reason=turns.reason,
        note="; ".join(notes),
        device=device.name,
        device_uuid=device.uuid,
    )


def _make_trial_of_winner(study: Study, tally: Tally, keeper: Keeper, confirmed: Sequence[Confirmed]) -> None:
    """Let a winner that the search did not ask be a row like any other."""
    winner = winner_of(confirmed)
    if winner is None or any((t.role, t.point.key) == winner.confirmed.key for t in tally.trials):
        return
    asked = Asked(study, Point.of(dict(winner.confirmed.params)), None)
    asked.start()
    asked.wait()
    trial = asked.finish()
    note = "; ".join(filter(None, (str(trial.details.get("note", "")), "measured for its confirmation")))
    tally.trials.append(keeper.add(replace(trial, details={**trial.details, "note": note})))
