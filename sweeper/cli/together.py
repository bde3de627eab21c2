"""One job that searches several shapes with one budget: who still gains most is asked next.

Each shape stays a study of its own, with the context, the rows and the record of a run that it has to itself; what
earlier runs have measured of it answers here, and the other way around. Whoever begins later knows what was
measured of the others until then.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.cli import session, terminal
from sweeper.cli.dry_run import show_plan
from sweeper.cli.estimates import from_times
from sweeper.cli.recorder import Recorder
from sweeper.cli.session_text import show_result
from sweeper.cli.shapes import named_shape
from sweeper.config import Config
from sweeper.device import target
from sweeper.errors import ConfigError, NoValidConfiguration, TrialFailed
from sweeper.evaluate import Evaluator, make_evaluator
from sweeper.model import Role, Status, Trial
from sweeper.problem import resolve
from sweeper.search import Strategy
from sweeper.search.gain import expected_gain
from sweeper.space import Space
from sweeper.table.row import time_ms
from sweeper.tune import Grant, Standing, Study, StudySearch, grant, past_gain

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from rich.console import Console

__all__ = ["run"]

_ENOUGH_TO_TELL = 8
_SAID_EVERY_S = 2.0


@dataclass
class _Member:
    """One shape's search."""

    config: Config
    weight: float
    study: Study
    recorder: Recorder
    facts: dict[str, Any]
    space: Space | None = None
    search: StudySearch | None = None
    strategy: Strategy | None = None
    code: int = 0
    over: bool = False
    values: list[float | None] = field(default_factory=list)

    @property
    def standing(self) -> Standing:
        if self.search is None or self.space is None:
            return Standing(0, 0, self.weight, over=True)
        gain = None if self.strategy is None else expected_gain(self.strategy)
        over = self.over or self.search.stopped
        return Standing(
            self.search.tally.asked, len(self.space), self.weight, gain, past_gain(self.values), over
        )

    def times(self) -> list[tuple[Mapping[str, Any], float | None]]:
        """What the candidates measured so far came to."""
        trials = self.search.tally.trials if self.search is not None else []
        return [
            (t.params, time_ms(t) if t.status is Status.OK else None)
            for t in trials
            if t.role is Role.CANDIDATE
        ]


def run(
    job: session.Job,
    folders: Sequence[Path],
    out: Console,
    say_once: Callable[[str], None],
    facts: dict[str, Any],
) -> int:
    """Search the shapes of `job.config.shapes`; `folders` are those of `--config-dir`, for shapes by name.

    Gives the gravest exit code of a shape, as a job each would end with. `facts` gets what they come to together and,
    in `studies`, each one's own. Raises as `session.run` does.
    """
    config = job.config
    spec = session.loaded_kernel(job, say_once)
    configs = [
        (replace(config, shape=named_shape(name, folders), shapes=None), weight)
        for name, weight in (config.shapes or {}).items()
    ]
    named = [(own, weight, *session.problem_dims(spec, own)) for own, weight in configs]
    twice = [shape for shape, count in Counter(shape for *_, shape in named).items() if count > 1]
    if twice:
        raise ConfigError(f"shapes: {twice[0]} is named twice", hint="name each shape once")
    if config.dry_run:
        for _, _, dims, shape in named:
            show_plan(spec, dims, shape, target(config.backend.target), out)
        return 0
    # What is wrong with the sizes is told before any device is opened.
    problems = [resolve(spec, dims, spec.default_point, seed=own.seed) for own, _, dims, _ in named]
    began = time.monotonic()
    with ExitStack() as stack:
        first = named[0][2]
        evaluator = stack.enter_context(closing(make_evaluator(config, say_once, (spec, first, config.seed))))
        if evaluator.backend == "replay":
            # What the table lacks is told before anything is asked.
            for _, _, dims, _ in reversed(named):
                evaluator.prepare(spec, dims, config.seed)
        facts["studies"], facts["statuses"] = [], Counter()
        members = [
            _member(job, own, weight, session.study_of(own, problem, dims, shape, evaluator), stack, facts)
            for (own, weight, dims, shape), problem in zip(named, problems, strict=True)
        ]
        together = _Together(job, members, evaluator, out)
        try:
            together.search()
            together.finish(began)
        finally:
            together.note(facts)
    return max(member.code for member in members)


def _member(
    job: session.Job, config: Config, weight: float, study: Study, stack: ExitStack, facts: dict[str, Any]
) -> _Member:
    recorder = Recorder(
        job.open_store(), study, resume=config.resume, runs_root=job.runs_root, beside=job.beside
    )
    stack.enter_context(closing(recorder))
    own = {**session.facts_of(study), "statuses": recorder.counts}
    facts["studies"].append(
        {"facts": own, "asked": 0, "shape": {"name": config.shape.name, **config.shape.sizes}}
    )
    return _Member(config, weight, study, recorder, own)


class _Together:
    """The searches of several shapes on one evaluator."""

    def __init__(
        self, job: session.Job, members: Sequence[_Member], evaluator: Evaluator, out: Console
    ) -> None:
        self._job = job
        self._members = members
        self._evaluator = evaluator
        self._out = out
        # The evaluator was made with the first one's problem.
        self._prepared = members[0]
        self._said = time.monotonic()

    def search(self) -> None:
        """Spend the budget."""
        for member in self._members:
            self._guarded(member, self._begin)
        config = self._job.config
        sizes = [len(member.space) for member in self._members if member.space is not None]
        budget = sum(sizes) if config.search.budget is None else min(config.search.budget, sum(sizes))
        with self._out.status("") if self._out.is_terminal else nullcontext() as shown:
            while (more := self._next(budget, max(config.search.lookahead, 1))) is not None:
                member = self._members[more.place]
                self._guarded(member, partial(self._advance, more.count))
                self._say(budget, shown)
                if member.search is not None and member.search.stopped:
                    return

    def finish(self, began: float) -> None:
        """Confirm the best of every shape, and say what came of it."""
        for member in self._members:
            self._guarded(member, partial(self._finish, began))

    def note(self, facts: dict[str, Any]) -> None:
        """Put into `facts` how far each shape has come, whatever ended the search."""
        for own, member in zip(facts["studies"], self._members, strict=True):
            own["asked"] = member.search.tally.asked if member.search is not None else 0
            facts["statuses"].update(member.recorder.counts)

    def _next(self, budget: int, part: int) -> Grant | None:
        return grant([member.standing for member in self._members], budget, part)

    def _guarded(self, member: _Member, act: Callable[[_Member], None]) -> None:
        """Do `act`, unless this shape is out; a shape that nothing can be measured of says so, and is."""
        if member.over:
            return
        try:
            act(member)
        except (NoValidConfiguration, TrialFailed) as error:
            member.over = True
            member.code = session.tell_nothing(member.study, member.recorder, error, self._out)

    def _begin(self, member: _Member) -> None:
        config, study = member.config, member.study
        member.space = space = session.space_of(study)
        member.search = StudySearch(
            study,
            space,
            lambda: self._strategy(member, space),
            member.recorder,
            _Heard(member),
            lookahead=max(config.search.lookahead, 1),
            baselines=config.baseline if study.evaluator.backend == "cuda" else (),
            fail_fast=config.fail_fast,
            attempts=member.recorder,
        )

    def _strategy(self, member: _Member, space: Space) -> Strategy:
        beside: list[tuple[Mapping[str, int], npt.NDArray[np.float64]]] = []
        for other in self._members:
            times = other.times() if other is not member else []
            if sum(ms is not None for _, ms in times) >= _ENOUGH_TO_TELL:
                known = from_times(space, times)
                beside += [] if known is None else [(other.study.dims, known)]
        member.strategy = session.strategy_for(member.config, member.study, space, beside)
        return member.strategy

    def _prepare(self, member: _Member) -> None:
        if self._prepared is not member:
            self._evaluator.prepare(member.study.spec, member.study.dims, member.study.seed)
            self._prepared = member

    def _advance(self, count: int, member: _Member) -> None:
        if member.search is None:
            raise AssertionError("it was begun")
        self._prepare(member)
        member.search.advance(member.search.tally.asked + count)

    def _finish(self, began: float, member: _Member) -> None:
        search, space = member.search, member.space
        if search is None or space is None:
            raise AssertionError("it was begun")
        self._prepare(member)
        tally = search.end()
        job = replace(self._job, config=member.config, brief=True)
        done = session.confirm_best(job, member.study, space, tally, member.recorder, self._out)
        member.facts["seconds"] = tally.seconds
        member.facts["confirmation"] = next((one.confirmation for one in done.confirmed), None)
        took = time.monotonic() - began
        show_result(member.study, space, tally, done, took, self._out, brief=True)
        member.code = 0 if tally.valid else NoValidConfiguration.exit_code

    def _say(self, budget: int, shown: Any) -> None:
        if shown is None and time.monotonic() - self._said < _SAID_EVERY_S:
            return
        self._said = time.monotonic()
        asked = [member.search.tally.asked if member.search else 0 for member in self._members]
        parts = [
            f"{member.study.shape} {count}{_best(member.values)}"
            for member, count in zip(self._members, asked, strict=True)
        ]
        text = f"{self._members[0].study.spec.name}: {sum(asked)} of {budget}: {'; '.join(parts)}"
        if shown is None:
            self._out.print(text)
        else:
            shown.update(text)


class _Heard:
    """Keeps the values of a shape in the order they were asked."""

    def __init__(self, member: _Member) -> None:
        self._member = member

    def finished(self, trial: Trial, *, reused: bool) -> None:
        del reused
        if trial.role is Role.CANDIDATE:
            self._member.values.append(time_ms(trial) if trial.status is Status.OK else None)


def _best(values: Sequence[float | None]) -> str:
    best = min((value for value in values if value is not None), default=None)
    return "" if best is None else f" ({terminal.format_ms(best)})"
