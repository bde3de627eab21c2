"""One job from its configuration to its rows: load the kernel, open the device, search, record."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.build.options import normalize_options, option_warnings
from sweeper.cli import terminal
from sweeper.cli.dry_run import show_plan
from sweeper.cli.recorder import Recorder
from sweeper.cli.session_text import announce, show_result, title
from sweeper.config import NEIGHBOURS, Config
from sweeper.device import target
from sweeper.errors import ConfigError, NoValidConfiguration, TrialFailed
from sweeper.evaluate import Evaluator, make_evaluator
from sweeper.kernel import description as kernel
from sweeper.kernel.layout import shape_suffix
from sweeper.kernel.sizes import differing, shape_text
from sweeper.model import KernelSpec, Role, Stage, Status, Trial
from sweeper.problem import Problem, resolve
from sweeper.resources.feasible import feasible_space, require_whole_launches
from sweeper.resources.geometry import why_not_emulable, why_not_predictable
from sweeper.search import Strategy, make
from sweeper.search.default_first import DefaultFirst
from sweeper.space import Space
from sweeper.tune import Confirmation, Study, Tally, confirm, tune

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from rich.console import Console

    from sweeper.store import Store

__all__ = [
    "Job",
    "confirm_best",
    "facts_of",
    "loaded_kernel",
    "problem_dims",
    "run",
    "space_of",
    "strategy_for",
    "study_of",
    "tell_nothing",
]

_DEFAULT_SIZE = 512
_DEFAULT_SHAPE = "small"


@dataclass(frozen=True, slots=True)
class Job:
    """A job's inputs. `runs_root` holds the folders of earlier runs, whose rows may be reused (None: only
    the job's own store may, and those `beside` it).

    `open_store` gives the command's store, made when the first job gets that far; `brief` jobs, one of
    several, say a line instead of a table.
    """

    config: Config
    kernel_path: Path
    open_store: Callable[[], Store]
    runs_root: Path | None
    brief: bool = False
    beside: Sequence[Path] = ()


def problem_dims(spec: KernelSpec, config: Config) -> tuple[dict[str, int], str]:
    """The sizes by upper-case name, and what to call them: the shape's name, or `1000x900x77`.

    An optional size is among them, and in the name, where it is not what it would be by itself: `large-lda4104`;
    so is a layout with a transposed operand: `large-nt`.
    """
    given = config.shape.sizes
    dims = {name: given.get(name.lower(), default or _DEFAULT_SIZE) for name, default in spec.dims.items()}
    unusual = differing(spec, dims, {name.upper(): size for name, size in given.items()})
    untouched = not given and all(default is None for default in spec.dims.values())
    named = config.shape.name or (_DEFAULT_SHAPE if untouched else shape_text(dims))
    # A named shape is one of M, N and K: what else a kernel has is told as an optional size is.
    more = {name: size for name, size in dims.items() if config.shape.name and _is_more(spec, name, size)}
    return dims | unusual, named + shape_text(more | unusual, 0) + shape_suffix(spec.layout)


def _is_more(spec: KernelSpec, name: str, size: int) -> bool:
    return name not in ("M", "N", "K") and spec.dims[name] not in (None, size)


def run(job: Job, out: Console, say_once: Callable[[str], None], facts: dict[str, Any]) -> int:
    """Do the job. Gives its exit code: 0, or 1 where no configuration was valid.

    Its provenance is put into `facts` as it becomes known, so that a job that ends early has it too.
    Raises ConfigError, SetupError and StorageError; what was measured before that is in the store.
    """
    config = job.config
    spec = loaded_kernel(job, say_once)
    dims, shape = problem_dims(spec, config)
    if config.dry_run:
        return show_plan(spec, dims, shape, target(config.backend.target), out)
    # What is wrong with the sizes is told before any device is opened.
    problem = resolve(spec, dims, spec.default_point, seed=config.seed)
    began = time.monotonic()
    with closing(make_evaluator(config, say_once, (spec, dims, config.seed))) as evaluator:
        study = study_of(config, problem, dims, shape, evaluator)
        facts.update(facts_of(study))
        recorder = Recorder(
            job.open_store(), study, resume=config.resume, runs_root=job.runs_root, beside=job.beside
        )
        with closing(recorder):
            facts["statuses"] = recorder.counts
            try:
                space = space_of(study)
                if not job.brief:
                    announce(study, space, out)
                tally = _search(job, study, space, recorder, out)
                confirmation = confirm_best(job, study, space, tally, recorder, out)
            except (NoValidConfiguration, TrialFailed) as error:
                return tell_nothing(study, recorder, error, out)
    facts["seconds"] = tally.seconds
    facts["confirmation"] = next((one.confirmation for one in confirmation.confirmed), None)
    took = time.monotonic() - began
    show_result(study, space, tally, confirmation, took, out, brief=job.brief)
    return 0 if tally.valid else NoValidConfiguration.exit_code


def loaded_kernel(job: Job, say_once: Callable[[str], None]) -> KernelSpec:
    """The job's kernel, after a word on its compiler options. Raises ConfigError."""
    config = job.config
    spec = kernel.load(config.kernel, job.kernel_path)
    for warning in option_warnings(normalize_options(spec.options)):
        say_once(f"warning: {spec.name}: {warning}")
    if spec.trip is not None and config.measure.objective != "time":
        raise ConfigError(
            f"measure.objective = {config.measure.objective}: {spec.name} is timed from host to host, and the"
            " energy of a launch says nothing of that",
            hint="write measure.objective=time, or leave out the kernel's trip",
        )
    return spec


def study_of(
    config: Config, problem: Problem, dims: Mapping[str, int], shape: str, evaluator: Evaluator
) -> Study:
    """The study of `problem`, called `shape`; `dims` are its sizes as they are told."""
    return Study(
        spec=problem.spec,
        dims=dims,
        shape=shape,
        seed=config.seed,
        flops=problem.flops,
        bytes=problem.bytes,
        evaluator=evaluator,
        protocol=config.measure.conditions(),
    )


def space_of(study: Study) -> Space:
    """What the study's search chooses among. Raises NoValidConfiguration where there is nothing, and ConfigError."""
    spec, world = study.spec, study.evaluator
    absent = why_not_emulable(spec) or why_not_predictable(spec)
    if world.backend == "emulator" and absent:
        raise NoValidConfiguration(absent)
    space = feasible_space(spec, study.dims, world.target)
    require_whole_launches(spec, space, study.dims, world.target)
    return space


def _search(job: Job, study: Study, space: Space, recorder: Recorder, out: Console) -> Tally:
    config = job.config
    budget = config.search.budget
    total = len(space) if budget is None else min(budget, len(space))
    baselines = config.baseline if study.evaluator.backend == "cuda" else ()
    with terminal.LiveProgress(out, f"{study.spec.name} {study.shape}", total) as progress:
        return tune(
            study,
            space,
            lambda: strategy_for(config, study, space, _neighbours(job, study, space)),
            recorder,
            progress,
            budget=budget,
            lookahead=max(config.search.lookahead, 1),
            baselines=baselines,
            fail_fast=config.fail_fast,
            attempts=recorder,
        )


def _neighbours(
    job: Job, study: Study, space: Space
) -> list[tuple[Mapping[str, int], npt.NDArray[np.float64]]]:
    """What the command's jobs have measured of this kernel at other sizes, where the search asks for it."""
    search = job.config.search
    if search.name != "guided" or NEIGHBOURS not in (search.learn_from or ()):
        return []
    from sweeper.cli.neighbours import neighbours

    return neighbours(study, space, job.open_store(), job.beside)


def strategy_for(
    config: Config,
    study: Study,
    space: Space,
    beside: Sequence[tuple[Mapping[str, int], npt.NDArray[np.float64]]] = (),
) -> Strategy:
    """The configured search of `space`; `beside` are times of it that this command measured at other sizes."""
    objectives = 2 if config.measure.objective == "both" else 1
    from sweeper.cli.estimates import Known, estimates

    search, spec, world = config.search, study.spec, study.evaluator
    tables = [path for path in search.learn_from or () if path != NEIGHBOURS]
    known = (
        estimates(spec, space, study.dims, world.target, world.identity, tables, beside)
        if search.name == "guided"
        else Known()
    )
    strategy = make(
        search.name,
        space,
        search.seed,
        search.options,
        objectives=objectives,
        estimates=known.static,
        measured=known.measured,
    )
    default = space.row(spec.default_point) if search.default_first else None
    return strategy if default is None else DefaultFirst(strategy, default)


def confirm_best(
    job: Job, study: Study, space: Space, tally: Tally, recorder: Recorder, out: Console
) -> Confirmation:
    """What the best of the search come to once more, as the job asks for it."""
    measure = job.config.measure
    if job.config.fail_fast and any(trial.status is not Status.OK for trial in tally.trials):
        return Confirmation()
    with (
        out.status("confirming: the finalists are timed in turns")
        if out.is_terminal
        else contextlib.nullcontext()
    ):
        return confirm(
            study,
            space,
            tally,
            recorder,
            finalists=measure.confirm,
            blocks=measure.confirm_blocks,
            least_effect=measure.least_effect,
        )


def tell_nothing(
    study: Study, recorder: Recorder, error: NoValidConfiguration | TrialFailed, out: Console
) -> int:
    """The end of a job that could ask nothing: one row says why, however often it is tried."""
    failure = error
    if isinstance(failure, NoValidConfiguration):
        failure = TrialFailed(Status.INFEASIBLE, Stage.SPACE, str(error))
        failure.__cause__ = error
    params = study.spec.default_point.params
    told = recorder.find(params, Role.CANDIDATE)
    if told is not None and (told.status, told.reason) == (failure.status, failure.reason):
        trial = told
    else:
        trial = _row_of_nothing(study, params, failure)
    recorder.add(trial)
    out.print(f"{title(study)}: no valid configuration: {failure.reason}")
    return NoValidConfiguration.exit_code


def _row_of_nothing(study: Study, params: Mapping[str, Any], failure: TrialFailed) -> Trial:
    return Trial(
        study=study.name,
        number=0,
        context=study.context,
        kernel=study.spec.name,
        dtype=study.spec.dtype.name,
        shape=study.shape,
        dims=dict(study.dims),
        params=params,
        status=failure.status,
        stage=failure.stage,
        reason=failure.reason,
        details={**failure.details, "exception": type(failure.__cause__ or failure).__name__},
        backend=study.evaluator.backend,
        device=study.evaluator.identity.name,
        device_uuid=study.evaluator.identity.uuid,
        driver=study.evaluator.identity.driver,
        kernel_digest=study.spec.digest,
        seed=study.seed,
    )


def facts_of(study: Study) -> dict[str, Any]:
    """What a reader needs to judge or repeat the job, beside the configuration."""
    world = study.evaluator
    return {
        "study": study.name,
        "context": study.context,
        "kernel": {"name": study.spec.name, "digest": study.spec.digest, "source": study.spec.source.name},
        "dims": dict(study.dims),
        "backend": world.backend,
        "time_source": world.time_source.value,
        "device": asdict(world.identity),
        "target": world.target.name,
        "compiler": world.compiler,
        **({"devices": [asdict(device) for device in world.devices]} if len(world.devices) > 1 else {}),
    }
