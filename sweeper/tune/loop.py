"""The loop: ask → build → measure → store → tell, until the budget or the space is spent.

Configurations are asked a few ahead so that they compile side by side, and finished strictly in asked
order: what the sampler knows at each step depends on the seed alone, never on which build was quick or
on how many devices measure. A finished configuration is in the store before the sampler or the user hears
of it. Devices go on with what is built while the loop stores, tells and asks.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from sweeper.errors import TrialFailed
from sweeper.model import Point, Role, Stage, Status, Trial
from sweeper.search.base import Strategy
from sweeper.space import Space
from sweeper.table.objective import objective_value
from sweeper.table.row import time_ms
from sweeper.tune.asked import STOPPED, Asked
from sweeper.tune.study import Study
from sweeper.worker.ticket import Ticket

__all__ = ["BEGUN_IN_VAIN", "Attempts", "Listener", "Recorder", "StudySearch", "Tally", "tune"]

# A failure that the same configuration would meet again; any other may have been the machine's. One that
# the space ruled out is asked again only because constraints, which are no part of the context, changed.
_REPEATABLE = {Status.OK, Status.INFEASIBLE, Status.BUILD_ERROR, Status.LAUNCH_ERROR, Status.WRONG_RESULT}
# It was tried once and once more.
_MOST_IN_VAIN = 2

BEGUN_IN_VAIN = "begun_in_vain"
"""The detail of a trial that was not run again: how often the machine went down before it was finished."""


class Recorder(Protocol):
    """Where finished trials go, and where earlier ones are found."""

    def find(self, params: Mapping[str, Any], role: Role) -> Trial | None:
        """An earlier trial of this configuration under the study's own conditions."""
        ...

    def add(self, trial: Trial) -> Trial:
        """Make `trial` durable, numbered within its study, and give it back."""
        ...


class Attempts(Protocol):
    """What is under way, kept where the machine's end does not reach it."""

    def begin(self, params: Mapping[str, Any]) -> int:
        """Note that this configuration is about to run; how often the machine went down while it did."""
        ...


class Listener(Protocol):
    """Hears of every finished trial; shows progress."""

    def finished(self, trial: Trial, *, reused: bool) -> None: ...


@runtime_checkable
class Watcher(Protocol):
    """A listener that wants to know what is waited for, too."""

    def waiting(self, ticket: Ticket | None) -> None: ...


@dataclass(slots=True)
class Tally:
    """What a run of the loop came to.

    `seconds` says where its wall-clock time went: `search` (asking and telling), `store` (finding and
    adding), `waiting` (for results) and `total`; beside them what the evaluator says of its devices.
    """

    asked: int = 0
    reused: int = 0
    trials: list[Trial] = field(default_factory=list)
    seconds: dict[str, Any] = field(default_factory=Counter)

    @property
    def valid(self) -> int:
        """How many candidates may rank."""
        return sum(t.status is Status.OK and t.role is Role.CANDIDATE for t in self.trials)

    @contextlib.contextmanager
    def timed(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[what] += time.monotonic() - began


def tune(
    study: Study,
    space: Space,
    strategy: Callable[[], Strategy],
    recorder: Recorder,
    listener: Listener,
    *,
    budget: int | None,
    lookahead: int,
    baselines: tuple[str, ...] = (),
    fail_fast: bool = False,
    attempts: Attempts | None = None,
) -> Tally:
    """Search `space` for the least of the study's objective; every configuration asked becomes a trial in `recorder`.

    `strategy` makes the strategy, whose modules may be slow to load: libraries run meanwhile.
    `budget` counts distinct configurations, those answered from earlier runs included. `lookahead` of them
    are asked before the first is told; more where no result changes the order. With `fail_fast` the first
    failed configuration ends the loop after it was recorded. A configuration that `attempts` knows to have been
    under way twice when the machine went down is a crash, and is not run again.
    Raises TrialFailed where the problem itself cannot be prepared, StorageError and SetupError; a failed
    configuration is a trial, not an exception.
    """
    search = StudySearch(
        study,
        space,
        strategy,
        recorder,
        listener,
        lookahead=lookahead,
        baselines=baselines,
        fail_fast=fail_fast,
        attempts=attempts,
    )
    search.advance(budget)
    return search.end()


class StudySearch:
    """The search of one study, a part of its budget at a time: what `tune` does, for several that share a device.

    Between two parts the evaluator may serve other problems; before the next one it has to be prepared for this
    study's again. Arguments are those of `tune`.
    """

    def __init__(
        self,
        study: Study,
        space: Space,
        strategy: Callable[[], Strategy],
        recorder: Recorder,
        listener: Listener,
        *,
        lookahead: int,
        baselines: tuple[str, ...] = (),
        fail_fast: bool = False,
        attempts: Attempts | None = None,
    ) -> None:
        self.tally = Tally()
        self.stopped = False
        self._study = study
        self._space = space
        self._make_strategy = strategy
        self._strategy: Strategy | None = None
        self._named: set[int] = set()
        self._recorder = recorder
        self._listener = listener
        self._lookahead = lookahead
        self._baselines = baselines
        self._fail_fast = fail_fast
        self._attempts = attempts

    def advance(self, budget: int | None) -> None:
        """Ask until `budget` configurations were asked in all, or every one (None), and wait for what they come to.

        With `fail_fast` it is `stopped` by the first that fails. Raises as `tune` does.
        """
        with self.tally.timed("total"):
            self._advance(len(self._space) if budget is None else min(budget, len(self._space)))

    def end(self) -> Tally:
        """Finish what earlier runs left half done, and say what the search came to."""
        with self.tally.timed("total"):
            if not self.stopped:
                self._sample_the_best_in_full()
        self.tally.seconds = {**self.tally.seconds, **self._study.evaluator.seconds()}
        return self.tally

    def _advance(self, limit: int) -> None:
        tally, world, libraries = self.tally, self._study.evaluator, list[Asked]()
        if self._strategy is None:
            libraries = [self._start(None, library) for library in self._baselines]
            with tally.timed("search"):
                self._strategy = self._make_strategy()
        elif (best_ms := _best_ms(tally)) is not None:
            # Another problem may have been the evaluator's meanwhile.
            world.seen(best_ms)
        strategy = self._strategy
        ahead = max(self._lookahead, world.capacity) if strategy.independent else self._lookahead
        queue: deque[tuple[int, Asked]] = deque()
        while not self.stopped:
            room = min(ahead - len(queue), limit - tally.asked)
            with tally.timed("search"):
                rows = strategy.ask(room) if room > 0 else []
            for row in rows:
                queue.append((row, self._start(self._space.point(row))))
                tally.asked += 1
            self._build_ahead(strategy, limit - tally.asked)
            while libraries:
                self._settle(libraries.pop(0))
            if not queue:
                break
            row, asked = queue.popleft()
            trial = self._settle(asked)
            with tally.timed("search"):
                strategy.tell(row, objective_value(trial, self._study.objective))
            self.stopped = self._fail_fast and trial.status is not Status.OK

    def _build_ahead(self, strategy: Strategy, left: int) -> None:
        """Have idle builders build what the strategy may ask next; what it asks does not depend on that."""
        world, tally = self._study.evaluator, self.tally
        count = 0 if strategy.independent else min(world.spare_builders, left)
        if count <= 0:
            return
        with tally.timed("search"):
            # What was named before is built, or under way, or known.
            rows = [row for row in strategy.likely(count) if row not in self._named]
            self._named.update(rows)
            points = [self._space.point(row) for row in rows]
        with tally.timed("store"):
            unknown = [p for p in points if self._recorder.find(p.params, Role.CANDIDATE) is None]
        world.build_ahead(unknown)

    def _start(self, point: Point | None, library: str | None = None, *, anew: bool = False) -> Asked:
        """Answer from an earlier trial of the same conditions, else begin to build and run."""
        asked = Asked(self._study, point, library)
        if not anew:
            with self.tally.timed("store"):
                asked.stored = self._earlier(asked)
        if asked.stored is None:
            asked.failed = self._why_not(asked)
            if asked.failed is None:
                asked.start()
        return asked

    def _why_not(self, asked: Asked) -> TrialFailed | None:
        """What keeps `asked` from being run, which is noted as under way otherwise."""
        if asked.point is None or self._attempts is None:
            return None
        with self.tally.timed("store"):
            vain = self._attempts.begin(asked.params)
        if vain < _MOST_IN_VAIN:
            return None
        return TrialFailed(
            Status.CRASH,
            Stage.LAUNCH,
            f"begun {vain} times, and each time the machine went down before it was finished: not run again",
            details={BEGUN_IN_VAIN: vain},
        )

    def _earlier(self, asked: Asked) -> Trial | None:
        found = self._recorder.find(asked.params, asked.role)
        if found is None or found.stage is Stage.SPACE:
            return None
        if found.status not in _REPEATABLE and BEGUN_IN_VAIN not in found.details:
            return None
        return found if self._study.reusable(found) else None

    def _settle(self, asked: Asked) -> Trial:
        """The trial of `asked`, recorded before anybody hears of it."""
        trial = self._record(asked)
        self.tally.trials.append(trial)
        self.tally.reused += asked.stored is not None
        self._listener.finished(trial, reused=asked.stored is not None)
        return trial

    def _record(self, asked: Asked) -> Trial:
        world, trial = self._study.evaluator, asked.stored
        if trial is None:
            if isinstance(self._listener, Watcher):
                self._listener.waiting(asked.ticket)
            with self.tally.timed("waiting"):
                world.ready()
                asked.wait()
            trial = asked.finish()
        elif trial.status is Status.OK and asked.point is not None and trial.timing is not None:
            world.seen(time_ms(trial) or math.inf)
        with self.tally.timed("store"):
            return self._recorder.add(trial)

    def _sample_the_best_in_full(self) -> None:
        """Measure the best again while it is one that an earlier run stopped, beside a better one, too soon.

        Each once: what is stopped again is beside a better one that the evaluator knows and this search does not.
        """
        trials, again = self.tally.trials, set[int]()
        while True:
            timed = [(ms, i) for i, t in enumerate(trials) if (ms := _candidate_ms(t)) is not None]
            place = min(timed)[1] if timed else None
            if place is None or place in again or STOPPED not in trials[place].details:
                return
            again.add(place)
            trials[place] = self._record(self._start(trials[place].point, anew=True))


def _best_ms(tally: Tally) -> float | None:
    return min((ms for trial in tally.trials if (ms := _candidate_ms(trial)) is not None), default=None)


def _candidate_ms(trial: Trial) -> float | None:
    valid = trial.status is Status.OK and trial.role is Role.CANDIDATE
    return time_ms(trial) if valid else None
