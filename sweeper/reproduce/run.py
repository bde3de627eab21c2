"""Published rows measured again, with what every search is measured with, into a store of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.cli import terminal
from sweeper.cli.recorder import Recorder
from sweeper.compare import Row
from sweeper.compare.row import rows_of
from sweeper.errors import INTERRUPTED, NoValidConfiguration, SweeperError, TrialFailed
from sweeper.evaluate import Evaluator, make_evaluator
from sweeper.model import Point, Trial
from sweeper.problem import resolve
from sweeper.provenance import run_record
from sweeper.reproduce.work import Work, narrowed
from sweeper.reproduce.world import differences_now
from sweeper.resources.feasible import feasible_space
from sweeper.resources.geometry import why_not_emulable, why_not_predictable
from sweeper.results import Results
from sweeper.search.grid import Grid
from sweeper.space import space_of_points
from sweeper.store import Store
from sweeper.tune import Study, tune

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Pair", "Reproduction"]

Pair = tuple[Row, Row | str]
"""A published row, and what it came to now or the reason that it was not run."""


class Reproduction:
    """Does works again, into the store that `open_store` opens when the first of them gets that far.

    `say` hears what is not as it was, before anything is measured; `command` is what was typed.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        out: Console,
        say: Callable[[str], object],
        command: Sequence[str] = (),
    ) -> None:
        self._open_store = open_store
        self._out = out
        self._say = say
        self._command = command
        self._said: set[str] = set()

    def run(self, works: Sequence[Work]) -> Iterator[Pair]:
        """The rows of each work, as soon as that work is done.

        Raises SetupError and StorageError; what was measured until then is stored.
        """
        for work in works:
            with closing(self._opened(work)) as world:
                yield from self._done(work, world)

    def _opened(self, work: Work) -> Evaluator:
        return make_evaluator(work.config, self._say_once, (work.spec, work.dims, work.seed))

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)

    def _done(self, work: Work, world: Evaluator) -> list[Pair]:
        started, facts = datetime.now(UTC), _facts(work, world)
        facts["exit_code"] = SweeperError.exit_code
        try:
            pairs = self._measured(work, world, facts)
            facts["exit_code"] = 0
            return pairs
        except KeyboardInterrupt:
            facts |= {"exit_code": INTERRUPTED, "error": "interrupted"}
            raise
        except SweeperError as error:
            facts |= {"exit_code": error.exit_code, "error": str(error)}
            raise
        finally:
            config = {**work.published.run["config"], "backend": asdict(work.config.backend), "resume": False}
            config["kernel"] = {
                **config["kernel"],
                "params": {p.name: list(p.levels) for p in work.spec.params},
            }
            record = run_record(command=self._command, config=config, started=started, facts=facts)
            self._open_store().add_run(record)

    def _measured(self, work: Work, world: Evaluator, facts: dict[str, Any]) -> list[Pair]:
        spec = work.spec
        problem = resolve(spec, work.dims, spec.default_point, seed=work.seed)
        study = Study(
            spec=spec,
            dims=work.dims,
            shape=work.shape,
            seed=work.seed,
            flops=problem.flops,
            bytes=problem.bytes,
            evaluator=world,
            protocol=work.config.measure.conditions(),
        )
        facts |= {"study": study.name, "context": study.context}
        for line in differences_now(work, world, study.context):
            self._say_once(f"not as recorded: {line}")
        with closing(Recorder(self._open_store(), study, resume=False, runs_root=None)) as recorder:
            facts["statuses"] = recorder.counts
            try:
                points, why_not = _feasible(work, world)
                trials = self._trials(work, study, points, recorder, facts)
            except (NoValidConfiguration, TrialFailed) as error:
                reason = error.reason if isinstance(error, TrialFailed) else str(error)
                return [(row, reason.splitlines()[0]) for row in work.published.rows]
        now = {(row.role, row.point.key): row for row in _rows(trials)}
        return [
            (row, now.get((row.role, row.point.key)) or why_not.get(row.point.key, "it was not run"))
            for row in work.published.rows
        ]

    def _trials(
        self, work: Work, study: Study, points: Sequence[Point], recorder: Recorder, facts: dict[str, Any]
    ) -> list[Trial]:
        space = space_of_points(work.spec.params, points)
        title = f"{work.spec.name} {work.shape}"
        with terminal.LiveProgress(self._out, title, len(space)) as progress:
            tally = tune(
                study,
                space,
                lambda: Grid(space),
                recorder,
                progress,
                budget=None,
                lookahead=study.evaluator.capacity,
                baselines=work.libraries,
                attempts=recorder,
            )
        facts["seconds"] = tally.seconds
        return tally.trials


def _feasible(work: Work, world: Evaluator) -> tuple[list[Point], Mapping[str, str]]:
    """The points that may run here, and for the others by key the rule that they break.

    Raises NoValidConfiguration where the kernel cannot run here at all.
    """
    absent = why_not_emulable(work.spec) or why_not_predictable(work.spec)
    if world.backend == "emulator" and absent:
        raise NoValidConfiguration(absent)
    points, why_not = [], {}
    for point in work.points:
        try:
            feasible_space(narrowed(work.spec, [point]), work.dims, world.target)
            points.append(point)
        except NoValidConfiguration as error:
            why_not[point.key] = f"infeasible: {' '.join(str(error).split())}"
    return points, why_not


def _rows(trials: Sequence[Trial]) -> list[Row]:
    """Finished trials as rows that compare."""
    from sweeper.table import frame

    timings = {(t.study, t.number): t.timing.samples_ms for t in trials if t.timing is not None}
    return rows_of(Results(Path(), "", frame(trials), timings=timings), ("max_error",))


def _facts(work: Work, world: Evaluator) -> dict[str, Any]:
    """What a reader needs to judge the rows, with what they reproduce."""
    published = work.published
    return {
        "kernel": {"name": work.spec.name, "digest": work.spec.digest, "source": work.spec.source.name},
        "dims": dict(work.dims),
        "backend": world.backend,
        "time_source": world.time_source.value,
        "device": asdict(world.identity),
        "target": world.target.name,
        "compiler": world.compiler,
        "confirmation": None,
        "reproduces": {
            "results": published.source,
            "run": published.run.get("id"),
            "study": published.first.study,
            "trials": [row.trial for row in published.rows],
        },
    }
