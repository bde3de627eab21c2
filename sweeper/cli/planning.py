"""`plan=true`: what a command would cost, job by job, said before anything is built or run.

Hydra composes the jobs as it would to run them; each is then estimated where it would have been done. The results
folder and the stores in it are only read.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeper.cli import session
from sweeper.cli.command_line import Arguments, launches
from sweeper.cli.jobs import Jobs
from sweeper.cli.past import Past
from sweeper.cli.planned import asked
from sweeper.cli.shapes import named_shape
from sweeper.config import Config
from sweeper.device import Target, target
from sweeper.device.present import count_gpus
from sweeper.errors import ConfigError, NoValidConfiguration
from sweeper.model import KernelSpec
from sweeper.plan import Estimated, Planned, Protocol, Work, as_json, as_text, estimated
from sweeper.problem import resolve
from sweeper.resources.columns import predicted_times
from sweeper.resources.feasible import feasible_space
from sweeper.space import Space

__all__ = ["Plans", "aside"]

# Of a very large space, evenly spaced configurations are looked at.
_LOOKED_AT = 4096


@contextlib.contextmanager
def aside(arguments: Arguments) -> Iterator[Arguments]:
    """`arguments` of a plan: Hydra's own files go to a folder that is deleted, and no launcher takes the jobs."""
    if arguments.plan is None:
        yield arguments
        return
    scratch = tempfile.mkdtemp(prefix="sweeper-plan-")
    try:
        kept = [
            word
            for word in arguments.hydra
            if not word.lstrip("+").startswith(
                ("hydra.run.", "hydra.sweep.", "hydra/launcher", "hydra.launcher")
            )
        ]
        if launches(arguments.hydra):
            kept.append("hydra/launcher=basic")
        kept += [f"hydra.run.dir='{scratch}'", f"hydra.sweep.dir='{scratch}'"]
        yield replace(arguments, hydra=tuple(kept))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class Plans(Jobs):
    """The jobs of a command that is only planned."""

    def __init__(self, arguments: Arguments, given: Sequence[str]) -> None:
        super().__init__(arguments, given)
        self._plans: list[Estimated] = []
        self._past: Past | None = None
        self._gpus: int | None = None

    def _claim_folder(self) -> None:
        """Nothing is written, so no folder is needed."""

    def _job(self, config: Config, facts: dict[str, Any]) -> int:
        del facts
        if self._arguments.plan is None:
            raise AssertionError("only a plan comes here")
        if config.plan.devices is not None:
            self._gpus = config.plan.devices
        if self._past is None:
            self._past = Past(self._arguments.folder, self._arguments.earlier, config.plan.rates or ())
        self._plans.append(self._planned(config, self._past))
        return 0

    def _planned(self, config: Config, past: Past) -> Estimated:
        if config.benchmark is not None:
            return estimated(Planned(self._number, asked(), on_gpu=False))
        job = session.Job(config, self._kernel_path(), _no_store, None)
        planned = Planned(
            self._number,
            asked(),
            protocol=_protocol(config),
            devices=_devices(config),
            workers=config.engine.cpus or config.build.workers or os.cpu_count() or 1,
            on_gpu=config.backend.name in ("auto", "cuda"),
        )
        try:
            works = _works(job, past, self._arguments.config_dirs, self._say_once)
        except NoValidConfiguration as error:
            return estimated(replace(planned, error=f"no valid configuration: {error.message}"))
        return estimated(replace(planned, works=works), past.rates_on(target(config.backend.target)))

    def close(self) -> int:
        """Print the plan, and give the command's exit code."""
        if self._plans and self._arguments.plan == "json":
            print(as_json(self._plans, self._gpus))  # noqa: T201
        elif self._plans:
            for line in as_text(self._plans, self._gpus):
                self._out.print(line, soft_wrap=True)
        return self._exit_code


def _no_store() -> Any:
    raise AssertionError("a plan stores nothing")


def _works(job: session.Job, past: Past, folders: Sequence[Path], say: Any) -> list[Work]:
    """The studies of a job. Raises as the job would that cannot begin."""
    config = job.config
    spec = session.loaded_kernel(job, say)
    limits = target(config.backend.target)
    configs = (
        [(replace(config, shape=named_shape(n, folders), shapes=None), w) for n, w in config.shapes.items()]
        if config.shapes
        else [(config, 1.0)]
    )
    named = [session.problem_dims(spec, own) for own, _ in configs]
    spaces = [feasible_space(spec, dims, limits) for dims, _ in named]
    budgets = _shares([len(space) for space in spaces], [w for _, w in configs], config.search.budget)
    return [
        _work(own, spec, dims, shape, space, budget, limits, past)
        for (own, _), (dims, shape), space, budget in zip(configs, named, spaces, budgets, strict=True)
    ]


def _shares(sizes: Sequence[int], weights: Sequence[float], budget: int | None) -> list[int]:
    """How a budget is spread over studies of these sizes: by weight, and nobody gets more than there is of it."""
    total = sum(sizes) if budget is None else min(budget, sum(sizes))
    shares = [0] * len(sizes)
    while (left := total - sum(shares)) > 0:
        open_ = [i for i, size in enumerate(sizes) if shares[i] < size]
        weight = sum(weights[i] for i in open_)
        for i in open_:
            more = max(1, int(left * weights[i] / weight))
            shares[i] += min(more, sizes[i] - shares[i], total - sum(shares))
    return shares


def _work(
    config: Config,
    spec: KernelSpec,
    dims: Mapping[str, int],
    shape: str,
    space: Space,
    budget: int,
    limits: Target,
    past: Past,
) -> Work:
    problem = resolve(spec, dims, spec.default_point, seed=config.seed)
    measured = config.backend.name in ("auto", "cuda")
    libraries = list(config.baseline) if measured else []
    stored = past.stored(spec, dims, config, space) if config.resume else None
    left = len(libraries)
    entrants = min(config.measure.confirm, budget) if measured else 0
    entrants += 1 + len(libraries) if entrants and config.measure.objective != "energy" else 0
    if stored is not None:
        left = len([name for name in libraries if name not in stored.libraries])
        if stored.rows >= budget and stored.confirmed:
            entrants = 0

    @functools.cache
    def predicted(sizes: tuple[tuple[str, int], ...]) -> float | None:
        return _typical_s(spec, dict(sizes), limits)

    return Work(
        kernel=spec.name,
        dtype=spec.dtype.name,
        shape=shape,
        dims=dict(dims),
        feasible=len(space),
        product=space.product_size,
        evaluations=budget,
        stored=min(budget, stored.rows) if stored is not None else 0,
        libraries=left,
        entrants=entrants,
        blocks=config.measure.confirm_blocks,
        bytes=problem.bytes,
        predicted_s=_typical_s(spec, dims, limits, space),
        predict=lambda sizes: predicted(tuple(sizes.items())),
    )


def _typical_s(
    spec: KernelSpec, dims: Mapping[str, int], limits: Target, space: Space | None = None
) -> float | None:
    """Seconds of a launch by the static model, the median of the space; None where it says nothing."""
    import numpy as np

    try:
        space = feasible_space(spec, dims, limits) if space is None else space
        problem = resolve(spec, dims, spec.default_point, seed=0)
    except (ConfigError, NoValidConfiguration):
        return None
    rows = space.indices[:: max(1, len(space) // _LOOKED_AT)]
    times = predicted_times(
        spec, space.names, space.levels, rows, dims, limits, flops=problem.flops, bytes=problem.bytes
    )
    times = times[np.isfinite(times)]
    return float(np.median(times)) / 1e3 if len(times) else None


def _protocol(config: Config) -> Protocol:
    measure = config.measure
    return Protocol(
        min_samples=measure.min_samples,
        max_samples=measure.max_samples,
        max_seconds=measure.max_seconds,
        stops_early=measure.stops_at is not None,
        both_caches=measure.cache == "both",
        energy_s=0.0 if measure.objective == "time" else measure.energy_seconds,
    )


def _devices(config: Config) -> int:
    if config.engine.name == "ray":
        return config.engine.gpus or 1
    chosen = config.backend.devices
    if chosen == "all":
        return max(1, count_gpus())
    return 1 if chosen is None else len(chosen)
