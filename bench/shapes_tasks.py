"""A rung at a shape, made ready for its search: kernel, feasible configurations, where to begin, how long to go on."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shapes_data import Rung, dims_of
from shapes_seeds import Seed, favourites, nearest

from sweeper.check.compose import Composer
from sweeper.device import Target
from sweeper.errors import ConfigError, KernelError, NoValidConfiguration
from sweeper.kernel.layout import layout_of
from sweeper.model import KernelSpec, Point
from sweeper.problem import Problem, resolve
from sweeper.resources import roofline_ms
from sweeper.resources.feasible import feasible_space
from sweeper.space import Space

__all__ = ["INPUTS_SEED", "Task", "Tasks"]

INPUTS_SEED = 42
# From here on a launch is long, and the search has to be short; from the second on, even shorter.
_LONG_MS = 0.7
_VERY_LONG_MS = 7.0
# What the search begins with, beside the default: so many of the nearest shapes' best, and of the static model's.
_SEEDS = 5
_FAVOURITES = 4


@dataclass(frozen=True, slots=True)
class Task:
    """A rung at a shape, to be searched from the configurations `rows` of `space` on."""

    rung: Rung
    spec: KernelSpec
    space: Space
    problem: Problem
    rows: tuple[int, ...]


class Tasks:
    """Makes tasks in one precision class on one kind of device; each kernel is composed once."""

    def __init__(self, composer: Composer, limits: Target, precision: str, scale: float = 1.0) -> None:
        self._composer = composer
        self._limits = limits
        self._precision = precision
        self._scale = scale
        self._specs: dict[tuple[str, str], KernelSpec | str] = {}

    def of(self, rung: Rung, shape: str, seeds: Sequence[Seed]) -> Task | str:
        """The task, or why the rung cannot take part at `shape`."""
        dims, layout = dims_of(shape), layout_of(shape)
        key = rung.kernel, layout
        if key not in self._specs:
            self._specs[key] = self._loaded(rung, layout)
        spec = self._specs[key]
        if isinstance(spec, str):
            return spec
        try:
            problem = resolve(spec, dims, spec.default_point, seed=INPUTS_SEED)
            space = feasible_space(spec, problem.dims, self._limits)
        except (NoValidConfiguration, ConfigError) as error:
            return str(error).partition("\n")[0]
        known = _points(spec, nearest(seeds, rung.kernel, dims, _SEEDS))
        rows = [row for point in (*known, spec.default_point) if (row := space.row(point)) is not None]
        work = problem.flops, problem.bytes
        rows += favourites(spec, space, problem.dims, self._limits, work, _FAVOURITES)
        return Task(rung, spec, space, problem, tuple(dict.fromkeys(rows)))

    def budget(self, task: Task) -> tuple[int, int]:
        """How many configurations to search, and how many blocks to confirm with."""
        problem = task.problem
        small, large = (max(round(self._scale * budget), 4) for budget in task.rung.budgets)
        least = roofline_ms(problem.flops, problem.bytes, task.spec.dtype, self._limits) or 0.0
        if least > _VERY_LONG_MS:
            return max(large // 2, 4), 8
        return (large, 10) if least > _LONG_MS else (small, 12)

    def _loaded(self, rung: Rung, layout: str) -> KernelSpec | str:
        """The rung's kernel in this class, or why there is none."""
        if rung.kernel not in self._composer.kernels:
            return f"there is no kernel {rung.kernel}"
        chosen = [f"kernel={rung.kernel}", f"++kernel.dtype={self._precision}"]
        chosen += [f"++kernel.layout={layout}"] if layout else []
        chosen += [f"kernel.params.{name}={list(levels)}" for name, levels in rung.levels.items()]
        try:
            return self._composer.compose(chosen)[0]
        except (ConfigError, KernelError) as error:
            return error.message


def _points(spec: KernelSpec, seeds: Sequence[Mapping[str, Any]]) -> list[Point]:
    """The configurations of earlier runs that this kernel still has."""
    points = []
    for params in seeds:
        with contextlib.suppress(ValueError):
            points.append(spec.point_of(params))
    return points
