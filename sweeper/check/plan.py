"""What is run of a kernel: which configurations, at which shapes, and how much of the space that stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.check.covering import Covering, cover
from sweeper.check.shapes import ShapeChoice, edge_shapes, why_infeasible
from sweeper.device import Target
from sweeper.errors import NoValidConfiguration
from sweeper.expressions import Expression, Value
from sweeper.expressions.columns import evaluate_columns
from sweeper.kernel.sizes import shape_text
from sweeper.model import KernelSpec, Point
from sweeper.resources.geometry import (
    implicit_constraints,
    launch_derived,
    scope_constants,
    why_not_emulable,
)
from sweeper.space import Space, build_space

__all__ = ["Case", "GpuOnly", "Plan", "make_plan"]


class GpuOnly(NoValidConfiguration):
    """The kernel is written for instructions that no CPU stands in for."""


@dataclass(frozen=True, slots=True)
class Case:
    """One configuration at one problem size; `plain` of its sizes are not optional ones (None: all)."""

    point: Point
    dims: Mapping[str, int] = field(hash=False)
    plain: int | None = None

    @property
    def shape(self) -> str:
        return shape_text(self.dims, self.plain)

    def __str__(self) -> str:
        return f"{self.point} at {self.shape}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The `cases` of `spec`, configuration by configuration.

    `feasible` counts the configurations that the constraints on parameters alone leave of `product`.
    `moved` shapes are neighbours of one that a condition forbids; `skipped` pairs of configuration and
    shape are infeasible, the first of them for `reason`.
    """

    spec: KernelSpec
    cases: tuple[Case, ...]
    covering: Covering
    feasible: int
    product: int
    moved: int = 0
    skipped: int = 0
    reason: str = ""

    @property
    def configurations(self) -> tuple[Point, ...]:
        return tuple(dict.fromkeys(case.point for case in self.cases))

    def __str__(self) -> str:
        c = self.covering
        text = (
            f"{len(self.configurations)} of {self.feasible} configurations"
            f" ({_all_or(c.levels, c.levels_of)} levels"
            + (f" and {_all_or(c.pairs, c.pairs_of)} pairs of levels" if c.pairs_of else "")
            + f"), {len(self.cases)} cases"
        )
        if self.moved:
            text += f"; {self.moved} shapes moved to the nearest that the kernel takes"
        if self.skipped:
            text += f"; {self.skipped} infeasible left out ({self.reason})"
        return text


def _all_or(done: int, of: int) -> str:
    return f"all {of}" if done == of else f"{done} of {of}"


def make_plan(
    spec: KernelSpec,
    target: Target,
    *,
    configurations: int,
    shapes: int,
    given: Sequence[Mapping[str, int]] = (),
) -> Plan:
    """A representative set of configurations, each at its edge shapes, or at those `given`.

    At most `configurations`, and `shapes` of each. Raises NoValidConfiguration where the constraints
    leave nothing, or nothing at any of the shapes, and GpuOnly where it cannot be emulated.
    """
    absent = why_not_emulable(spec)
    if absent:
        raise GpuOnly(f"kernel {spec.name} {absent}")
    space = _space(spec, target)
    covering = cover(
        space.indices,
        [len(levels) for levels in space.levels],
        first=_first_rows(spec, space, target),
        limit=max(1, configurations),
    )
    cases: list[Case] = []
    moved = skipped = 0
    reason = ""
    for row in covering.rows:
        point = space.point(row)
        choice = (
            _given(spec, point, target, given)
            if given
            else edge_shapes(spec, point, target, limit=max(1, shapes))
        )
        cases += [Case(point, dims, len(spec.dims)) for dims in choice.shapes]
        moved, skipped = moved + choice.moved, skipped + choice.skipped
        reason = reason or choice.reason
    if not cases:
        raise NoValidConfiguration(
            f"kernel {spec.name}: no configuration can run at any of the shapes: {reason}",
            hint="give shapes that it takes, such as shape=64x64x64",
        )
    return Plan(spec, tuple(cases), covering, len(space), space.product_size, moved, skipped, reason)


def _given(spec: KernelSpec, point: Point, target: Target, given: Iterable[Mapping[str, int]]) -> ShapeChoice:
    shapes, skipped, reason = [], 0, ""
    for dims in given:
        problem = why_infeasible(spec, point, dims, target)
        if problem:
            skipped += 1
            reason = reason or f"{problem} at {'x'.join(str(size) for size in dims.values())}"
        else:
            shapes.append(dict(dims))
    return ShapeChoice(tuple(shapes), 0, skipped, reason)


def _space(spec: KernelSpec, target: Target) -> Space:
    """The configurations that hold whatever concerns parameters and the device alone."""
    constants = scope_constants(spec, dict.fromkeys(spec.dims, 1), target)
    derived = launch_derived(spec)
    on_size = _depend_on({*spec.dims, *spec.optional_dims}, derived)
    rules = [
        part
        for constraint in (*implicit_constraints(target), *spec.constraints)
        for part in constraint.conjuncts()
        if not part.names & on_size
    ]
    return build_space(spec.params, rules, constants, derived)


def _depend_on(names: set[str], derived: Mapping[str, Expression]) -> set[str]:
    """`names`, and the derived ones whose value depends on any of them."""
    found = set(names)
    while True:
        more = {name for name, value in derived.items() if value.names & found} - found
        if not more:
            return found
        found |= more


def _first_rows(spec: KernelSpec, space: Space, target: Target) -> list[int]:
    """The default configuration, and those with most and fewest threads and most and least shared memory."""
    default = space.row(spec.default_point)
    rows = [] if default is None else [default]
    derived = launch_derived(spec)
    scope: dict[str, Any] = dict(scope_constants(spec, dict.fromkeys(spec.dims, 1), target))
    for i, (name, levels) in enumerate(zip(space.names, space.levels, strict=True)):
        scope[name] = _column(levels)[space.indices[:, i]]
    definitions = {name: e.tree for name, e in derived.items() if name not in space.names}
    threads, shared = (
        sum(_values(derived[name], scope, definitions, len(space)) for name in names)
        for names in (("threads",), ("shared_bytes", "static_shared_bytes"))
    )
    for figures in (threads, shared):
        rows += [int(np.argmax(figures)), int(np.argmin(figures))]
    return rows


def _column(levels: Sequence[Value]) -> npt.NDArray[Any]:
    same_type = len({type(level) for level in levels}) == 1
    column = np.array(levels) if same_type else np.empty(len(levels), object)
    if not same_type:
        column[:] = levels
    return column


def _values(
    expression: Expression, scope: Mapping[str, Any], definitions: Mapping[str, Any], rows: int
) -> npt.NDArray[np.float64]:
    """The expression at every row; 0 where it has no value."""
    values, _ = evaluate_columns(expression.tree, scope, definitions)
    return np.broadcast_to(values.astype(np.float64), rows)
