"""The loop: ask → build → measure → store → tell, until the budget or the space is spent.

Configurations are asked a few ahead so that they compile side by side, and finished strictly in asked
order: what the sampler knows at each step depends on the seed alone, never on which build was quick.
A finished configuration is in the store before the sampler or the user hears of it.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from sweeper.errors import TrialFailed
from sweeper.evaluate import Evaluator, Ticket
from sweeper.model import (
    Build,
    Check,
    KernelSpec,
    Launch,
    Point,
    Role,
    Stage,
    Status,
    TimeSource,
    Trial,
    digest,
)
from sweeper.resources import Resources, resources, suspect
from sweeper.search.base import Strategy
from sweeper.space import Space
from sweeper.table.row import time_ms

__all__ = ["Listener", "Recorder", "Study", "Tally", "tune"]

# A failure that the same configuration would meet again; any other may have been the machine's.
_REPEATABLE = {Status.OK, Status.INFEASIBLE, Status.BUILD_ERROR, Status.LAUNCH_ERROR, Status.WRONG_RESULT}


# The keys of a description that say which points there are, not what a point does.
_SPACE_KEYS = {"params", "default", "constraints", "description"}


@dataclass(frozen=True, slots=True)
class Study:
    """One kernel at one shape on one device: what every trial of it shares."""

    spec: KernelSpec
    dims: Mapping[str, int]
    shape: str
    seed: int
    flops: int | None
    bytes: int
    evaluator: Evaluator
    protocol: Mapping[str, Any]

    @property
    def context(self) -> str:
        """Digest of everything but the point that a result depends on.

        Which points may be asked is no part of it: a level added later leaves earlier trials valid.
        """
        spec, world = self.spec, self.evaluator
        predicted = world.time_source is TimeSource.PREDICTED
        left_out = _SPACE_KEYS if predicted else _SPACE_KEYS | {"model"}
        description = {k: v for k, v in json.loads(spec.node_json or "{}").items() if k not in left_out}
        return digest(
            {
                "kernel": [spec.digest, description, spec.dtype.name],
                "dims": dict(self.dims),
                "seed": self.seed,
                "backend": world.backend,
                "device": [
                    world.identity.name,
                    world.identity.uuid,
                    world.identity.driver,
                    world.target.name,
                ],
                "compiler": world.compiler,
                "protocol": dict(self.protocol),
            }
        )

    @property
    def name(self) -> str:
        """A name for people that no other study of the same store has."""
        return f"{self.spec.name}-{self.spec.dtype.name}-{self.shape}-{self.context[:8]}"


class Recorder(Protocol):
    """Where finished trials go, and where earlier ones are found."""

    def find(self, params: Mapping[str, Any], role: Role) -> Trial | None:
        """An earlier trial of this configuration under the study's own conditions."""
        ...

    def add(self, trial: Trial) -> Trial:
        """Make `trial` durable, numbered within its study, and give it back."""
        ...


class Listener(Protocol):
    """Hears of every finished trial; shows progress."""

    def finished(self, trial: Trial, *, reused: bool) -> None: ...


@dataclass(slots=True)
class Tally:
    """What a run of the loop came to."""

    asked: int = 0
    reused: int = 0
    trials: list[Trial] = field(default_factory=list)

    @property
    def valid(self) -> int:
        """How many candidates may rank."""
        return sum(t.status is Status.OK and t.role is Role.CANDIDATE for t in self.trials)


def tune(
    study: Study,
    space: Space,
    strategy: Strategy,
    recorder: Recorder,
    listener: Listener,
    *,
    budget: int | None,
    lookahead: int,
    baselines: tuple[str, ...] = (),
    fail_fast: bool = False,
) -> Tally:
    """Search `space` for the fastest configuration; every one asked becomes a trial in `recorder`.

    `budget` counts distinct configurations, those answered from earlier runs included. With
    `fail_fast` the first failed configuration ends the loop after it was recorded.
    Raises StorageError and SetupError; a failed configuration is a trial, not an exception.
    """
    tally = Tally()
    for library in baselines:
        _settle(_Asked(study, None, library), recorder, listener, tally)
    limit = len(space) if budget is None else min(budget, len(space))
    queue: deque[tuple[int, _Asked]] = deque()
    while True:
        room = min(lookahead - len(queue), limit - tally.asked)
        for row in strategy.ask(room) if room > 0 else ():
            asked = _Asked(study, space.point(row), None)
            asked.start(recorder)
            queue.append((row, asked))
            tally.asked += 1
        if not queue:
            return tally
        row, asked = queue.popleft()
        trial = _settle(asked, recorder, listener, tally)
        strategy.tell(row, time_ms(trial))
        if fail_fast and trial.status is not Status.OK:
            return tally


class _Asked:
    """One asked configuration (or library) on its way to a trial."""

    def __init__(self, study: Study, point: Point | None, library: str | None) -> None:
        self.study = study
        self.point = point
        self.library = library
        self.role = Role.CANDIDATE if library is None else Role.BASELINE
        self.stored: Trial | None = None
        self.ticket: Ticket | None = None
        self.failed: TrialFailed | None = None

    def start(self, recorder: Recorder) -> None:
        """Find an earlier trial of the same conditions, else begin to build."""
        found = recorder.find(self.params, self.role)
        if found is not None and found.status in _REPEATABLE:
            self.stored = found
        elif self.point is not None:
            try:
                self.ticket = self.study.evaluator.submit(self.point)
            except TrialFailed as failure:
                self.failed = failure

    @property
    def params(self) -> dict[str, Any]:
        return {"library": self.library} if self.point is None else self.point.params

    def finish(self) -> Trial:
        """Run it, and describe what came of it."""
        began = time.monotonic()
        trial = self._run()
        measured = self.study.evaluator.time_source is TimeSource.MEASURED
        return replace(trial, measure_s=time.monotonic() - began) if measured else trial

    def _run(self) -> Trial:
        try:
            if self.failed is not None:
                raise self.failed
            world = self.study.evaluator
            outcome = world.baseline(self.library) if self.library else world.finish(self._ticket())
        except TrialFailed as failure:
            return self._failure(failure)
        build, launch = outcome.build, outcome.launch
        trial = self._trial(Status.OK, Stage.DONE, build, launch, {})
        trial = replace(trial, check=outcome.check, timing=outcome.timing)
        notes = "; ".join(n for n in (outcome.note, self._suspicion(trial)) if n)
        return replace(trial, details={**trial.details, "note": notes}) if notes else trial

    def _suspicion(self, trial: Trial) -> str:
        """What makes a measured time implausible on this device."""
        study, value = self.study, time_ms(trial)
        if trial.timing is None or value is None:
            return ""
        why = suspect(study.flops, study.bytes, value, study.spec.dtype, study.evaluator.target)
        return f"suspect: {why}" if why else ""

    def _ticket(self) -> Ticket:
        if self.ticket is None:
            raise AssertionError("start comes first")
        return self.ticket

    def _failure(self, failure: TrialFailed) -> Trial:
        details = dict(failure.details)
        check = details.pop("check", None)
        launch = details.pop("launch", None)
        details.setdefault("exception", type(failure.__cause__ or failure).__name__)
        build = self._finished_build()
        trial = self._trial(
            failure.status, failure.stage, build, launch if isinstance(launch, Launch) else None, details
        )
        checked = check if isinstance(check, Check) else None
        return replace(trial, reason=failure.reason, check=checked, time_source=None, predicted_ms=None)

    def _finished_build(self) -> Build | None:
        future = self.ticket.build if self.ticket else None
        ready = future is not None and future.done() and not future.cancelled() and future.exception() is None
        return future.result() if future is not None and ready else None

    def _trial(
        self,
        status: Status,
        stage: Stage,
        build: Build | None,
        launch: Launch | None,
        details: dict[str, Any],
    ) -> Trial:
        study, world = self.study, self.study.evaluator
        figures = self._figures(build)
        if figures is not None:
            details = {"roofline_ms": figures.roofline_ms, "limited_by": figures.limited_by, **details}
        measured = world.time_source is TimeSource.MEASURED
        return Trial(
            study=study.name,
            number=0,
            context=study.context,
            kernel=self.library or study.spec.name,
            dtype=study.spec.dtype.name,
            shape=study.shape,
            dims=dict(study.dims),
            params=self.params,
            status=status,
            stage=stage,
            role=self.role,
            details=details,
            time_source=world.time_source,
            predicted_ms=figures.predicted_ms if figures else None,
            launch=launch or (figures.launch if figures else None),
            build=build,
            occupancy=figures.occupancy if figures else None,
            flops=study.flops,
            bytes=study.bytes,
            backend=world.backend,
            device=world.identity.name,
            device_uuid=world.identity.uuid,
            driver=world.identity.driver,
            kernel_digest=study.spec.digest if self.role is Role.CANDIDATE else "",
            seed=study.seed,
            build_s=build.seconds if build is not None and measured else None,
        )

    def _figures(self, build: Build | None) -> Resources | None:
        """The static model's view of this point, with the compiler's registers where it gave them."""
        if self.point is None:
            return None
        study = self.study
        return resources(
            study.spec,
            self.point,
            study.dims,
            study.evaluator.target,
            registers=build.registers if build else None,
            flops=study.flops,
            bytes=study.bytes,
        )


def _settle(asked: _Asked, recorder: Recorder, listener: Listener, tally: Tally) -> Trial:
    """The trial of `asked`, recorded before anybody hears of it."""
    if asked.point is None:
        asked.start(recorder)
    reused = asked.stored is not None
    trial = recorder.add(asked.stored if asked.stored is not None else asked.finish())
    tally.trials.append(trial)
    tally.reused += reused
    listener.finished(trial, reused=reused)
    return trial
