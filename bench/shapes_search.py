"""One shape on one GPU: every rung that suits it searched, the best of them timed in turns with both libraries."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shapes_data import Family, dims_of, suiting
from shapes_results import Final, Found, Work, best_of
from shapes_seeds import Seed, Seeded
from shapes_tasks import INPUTS_SEED, Task, Tasks

from sweeper.backend.base import Finalist, Rounds
from sweeper.check.compose import Composer
from sweeper.config import MeasureConfig
from sweeper.dtypes import dtype
from sweeper.errors import TrialFailed
from sweeper.evaluate import LiveEvaluator
from sweeper.model import Confirmed, Point, Role, Trial
from sweeper.search import make
from sweeper.space import Space
from sweeper.table.standings import winner_of
from sweeper.tune import Study, Tally, confirm, tune

__all__ = ["LIBRARIES", "Bench", "Result"]

LIBRARIES = ("cublas", "cublaslt")
_LOOKAHEAD = 16
_STARTUP = 14
# A rung whose best is so much slower than the best of all is not confirmed: it does not win.
_HOPELESS = 1.12
# One whose first ten are all so much slower is not searched any further.
_NO_PROSPECT = 1.4


class Memory:
    """The recorder, keeper and listener of one search; what counts is written once the shape is done."""

    def __init__(self) -> None:
        self.finals: Sequence[Confirmed] = ()

    def find(self, params: Mapping[str, Any], role: Role) -> None:
        """Nothing was measured before."""

    def add(self, trial: Trial) -> Trial:
        return trial

    def finished(self, trial: Trial, *, reused: bool) -> None:
        """Nobody listens."""

    def confirmed(self) -> list[Confirmed]:
        return []

    def keep(self, confirmed: Sequence[Confirmed]) -> None:
        self.finals = tuple(confirmed)


@dataclass(frozen=True, slots=True)
class Result:
    """What a shape came to: every rung, in the order of the search, and the place of the best (None: no rung ran)."""

    work: Work
    rungs: tuple[Found, ...]
    best: int | None
    warm: Mapping[str, tuple[float, ...]]
    seconds: float


class Bench:
    """All that one process measures on its GPU, in one precision class."""

    def __init__(
        self,
        world: LiveEvaluator,
        composer: Composer,
        measure: MeasureConfig,
        family: Family,
        precision: str,
        scale: float = 1.0,
    ) -> None:
        self._world = world
        self._measure = measure
        self._family = family
        self._dtype = precision
        self._tasks = Tasks(composer, world.target, precision, scale)
        self._ends_s = math.inf

    def result(self, shape: str, seeds: Sequence[Seed], limit_s: float) -> Result:
        """Search `shape`; after `limit_s` seconds nothing more is asked, and no rung but the first is begun.

        Each rung has a share of the time by its budget. What was found until then is confirmed. Raises SetupError
        where the device is lost.
        """
        began = time.monotonic()
        ends_s = began + limit_s
        dims = dims_of(shape)
        found: list[Found] = []
        tasks: list[Task] = []
        for rung in suiting(self._family, dims, dtype(self._dtype).bytes):
            task = self._tasks.of(rung, shape, seeds)
            if isinstance(task, str):
                found.append(Found(rung.kernel, reason=task))
            else:
                tasks.append(task)
        libraries: list[Trial] = []
        least_ms = math.inf
        last: Task | None = None
        for place, task in enumerate(tasks):
            if place and time.monotonic() > ends_s:
                found.append(Found(task.rung.kernel, reason="no time was left"))
                continue
            if place + 1 < len(tasks):
                self._ahead(tasks[place + 1])
            start, spent = time.monotonic(), self._world.seconds()
            budgets = [self._tasks.budget(other)[0] for other in tasks[place:]]
            self._ends_s = start + (ends_s - start) * budgets[0] / sum(budgets)
            found.append(self._searched(task, shape, libraries, least_ms))
            seconds = f"{time.monotonic() - start:.1f} s ({_spent(spent, self._world.seconds())})"
            print(f"  {shape} {_said(found[-1])}, {seconds}", flush=True)
            last = task
            least_ms = min(least_ms, found[-1].searched_ms)
        best = best_of(found)
        warm = self._warm(None if best is None else found[best], tasks, last, libraries)
        return Result(self._work(dims, tasks), tuple(found), best, warm, time.monotonic() - began)

    def _ahead(self, task: Task) -> None:
        self._world.build_ahead([task.space.point(row) for row in task.rows], task.spec)

    def _over(self) -> bool:
        return time.monotonic() > self._ends_s

    def _searched(self, task: Task, shape: str, libraries: list[Trial], least_ms: float) -> Found:
        """The rung's search and, where it may win, its confirmation; the first one races the libraries."""
        spec, space, problem = task.spec, task.space, task.problem
        self._world.prepare(spec, problem.dims, INPUTS_SEED)
        if math.isfinite(least_ms):
            # What is hopeless beside another rung need not be sampled in full either.
            self._world.seen(least_ms)
        study = Study(
            spec, problem.dims, shape, INPUTS_SEED, problem.flops, problem.bytes, self._world,
            self._measure.conditions(),
        )  # fmt: skip
        budget, blocks = self._tasks.budget(task)
        memory = Memory()

        def strategy() -> Seeded:
            search = make("bayes", space, 0, {"startup": _STARTUP})
            return Seeded(search, task.rows, self._over, _NO_PROSPECT * least_ms)

        try:
            tally = tune(
                study, space, strategy, memory, memory, budget=budget, lookahead=_LOOKAHEAD,
                baselines=() if libraries else LIBRARIES,
            )  # fmt: skip
        except TrialFailed as failure:
            return Found(task.rung.kernel, reason=failure.reason)
        libraries += [trial for trial in tally.trials if trial.role is Role.BASELINE]
        found = Found.of(task.rung.kernel, tally.trials)
        if not math.isfinite(found.searched_ms) or found.searched_ms > _HOPELESS * least_ms:
            return found
        return self._confirmed(study, space, tally, libraries, found, blocks)

    def _confirmed(
        self,
        study: Study,
        space: Space,
        tally: Tally,
        libraries: Sequence[Trial],
        found: Found,
        blocks: int,
    ) -> Found:
        memory = Memory()
        trials = [trial for trial in tally.trials if trial.role is Role.CANDIDATE]
        entered = replace(tally, trials=[*trials, *libraries])
        confirm(
            study, space, entered, memory, finalists=3 if blocks > 8 else 2, blocks=blocks,
            least_effect=self._measure.least_effect,
        )  # fmt: skip
        winner = winner_of(memory.finals)
        return found if winner is None else replace(found, final=Final.of(winner, memory.finals))

    def _warm(
        self, best: Found | None, tasks: Sequence[Task], last: Task | None, libraries: Sequence[Trial]
    ) -> dict[str, tuple[float, ...]]:
        """Times with a warm L2 of the best and the libraries, in turns, by name; nothing where it cannot be."""
        if best is None or best.final is None or last is None:
            return {}
        task = next(task for task in tasks if task.rung.kernel == best.kernel)
        if task is not last:
            self._world.prepare(task.spec, task.problem.dims, INPUTS_SEED)
            self._world.ready()
        (built,) = self._world.finalists([Point.of(dict(best.final.params))])
        if isinstance(built, TrialFailed):
            return {}
        entered = {best.kernel: built}
        for trial in libraries:
            if trial.timing is not None:
                chosen = trial.details.get("library", {})
                entered[trial.kernel] = Finalist(library=trial.kernel, chosen=chosen)
        _, blocks = self._tasks.budget(task)
        try:
            answer = self._world.confirm(
                list(entered.values()), Rounds(blocks - 2, seed=INPUTS_SEED, cache="warm")
            )
        except TrialFailed:
            return {}
        turns = answer[0] if answer is not None else ()
        return {name: each.times_ms for name, each in zip(entered, turns, strict=False) if not each.reason}

    def _work(self, dims: Mapping[str, int], tasks: Sequence[Task]) -> Work:
        """What the shape asks of the device."""
        problem = tasks[0].problem if tasks else None
        flops = 2 * math.prod(dims.values())
        if problem is None:
            return Work(flops, None, self._dtype, self._world.target)
        return Work(problem.flops or flops, problem.bytes, self._dtype, self._world.target)


def _said(found: Found) -> str:
    """A rung in a line, for who watches."""
    if found.reason:
        return f"{found.kernel}: {found.reason}"
    confirmed = f", confirmed {found.final.time_ms:.4g}" if found.final is not None else ""
    return f"{found.kernel}: {found.valid} of {found.evaluations} ran, best {found.searched_ms:.4g} ms{confirmed}"


def _spent(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Where the time between two readings of an evaluator's seconds went."""
    busy = after["device_busy"][0] - before["device_busy"][0]
    builds = after["waiting_for_builds"] - before["waiting_for_builds"]
    phases = {name: s - before["phases"].get(name, 0.0) for name, s in after["phases"].items()}
    most = ", ".join(f"{name} {s:.1f}" for name, s in phases.items() if s >= 0.1)
    return f"device {busy:.1f}, of it {most or 'little'}; waiting for builds {builds:.1f}"
