"""The feasible points of a kernel's parameters, and what a search asks about them.

    space = build_space(spec.params, spec.constraints, {"M": 4096, "max_threads": 1024})
    space.point(0), space.neighbours(0), space.why_infeasible(point)

A row is a feasible point's number; rows are in lexicographic order of the parameters' level indices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from sweeper.errors import ConfigError, NoValidConfiguration
from sweeper.expressions import Expression, Value
from sweeper.model import ParamSpec, Point
from sweeper.space.feasibility import Feasibility
from sweeper.space.joins import TooManyPoints, components
from sweeper.space.mixed_radix import MAX_ROWS, MixedRadix, RowIndex

__all__ = ["Space", "build_space", "space_of_points"]

_CANDIDATES_PER_POINT: Final = 64
"""Work allowed for a space of the most points: candidates looked at per point."""

_SHOWN_CONSTRAINTS: Final = 3


class Space:
    """Feasible points as rows of level indices.

    `names` and `levels` are the parameters and their levels in given order; `indices`, shape (rows,
    parameters), is read-only; `product_size` counts the points of the unconstrained product.
    """

    def __init__(self, feasibility: Feasibility, radix: MixedRadix, codes: npt.NDArray[np.int64]) -> None:
        self._feasibility = feasibility
        self._radix = radix
        self._rows = RowIndex(radix, codes)
        self.names: tuple[str, ...] = feasibility.names
        self.levels: tuple[tuple[Value, ...], ...] = feasibility.levels
        self.product_size: int = feasibility.product_size
        self.indices: npt.NDArray[np.integer[Any]] = radix.decode(codes)
        self.indices.setflags(write=False)

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return (
            f"Space({len(self):,} of {self.product_size:,} points over {', '.join(self.names) or 'nothing'})"
        )

    def point(self, row: int) -> Point:
        """The point of `row`; negative rows are refused with IndexError."""
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of a space of {len(self)} points")
        chosen = self.indices[row].tolist()
        values = (levels[index] for levels, index in zip(self.levels, chosen, strict=True))
        return Point(tuple(zip(self.names, values, strict=True)))

    def row(self, point: Point) -> int | None:
        """The row of `point`, or None if it is infeasible or not a choice of levels."""
        indices = self._feasibility.indices_of(point)
        return None if isinstance(indices, str) else self._row_of(indices)

    def why_infeasible(self, point: Point) -> str | None:
        """The first constraint that `point` violates with its numbers, or what is wrong with its
        parameters or levels; None exactly for the points of the space."""
        indices = self._feasibility.indices_of(point)
        if isinstance(indices, str):
            return indices
        return None if self._row_of(indices) is not None else self._feasibility.violation(indices)

    def neighbours(
        self, row: int, kind: Literal["adjacent", "hamming"] = "adjacent"
    ) -> npt.NDArray[np.int64]:
        """Rows that differ from `row` in one parameter, by parameter and then level.

        `hamming`: by any other level. `adjacent`: by the nearest feasible level below and above, which
        steps over gaps that the constraints leave.
        """
        if kind not in ("adjacent", "hamming"):
            raise ConfigError(f"unknown kind of neighbours {kind!r}", hint="use adjacent or hamming")
        position, level = self._one_parameter_changes
        own = self.indices[row].astype(np.int64)
        codes = self._radix.encode([own[j : j + 1] for j in range(len(own))], range(len(own)))
        words = np.repeat(codes, len(level), axis=1)
        shift = (level - own[position]) * self._strides[position]
        words[self._words[position], np.arange(len(level))] += shift
        found = self._rows.find(words)
        feasible = (found >= 0) & (found != row)
        if kind == "adjacent":
            feasible &= _nearest_on_each_side(position, level, own, feasible)
        rows: npt.NDArray[np.int64] = found[feasible]
        return rows

    def sample(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
        """`count` distinct rows in random order; all rows, shuffled, where there are fewer."""
        rows = rng.choice(len(self), size=min(count, len(self)), replace=False)
        return np.asarray(rows, dtype=np.int64)

    def nearest_feasible(
        self, ordinal: Sequence[float] | npt.NDArray[Any], *, exclude: npt.NDArray[np.bool_] | None = None
    ) -> int | None:
        """The row nearest to a vector of level indices (fractions allowed), None where all are excluded.

        The distance is the sum over parameters of |difference| / (levels - 1); of equally near rows the
        first. `exclude` masks rows that are not wanted.
        """
        wanted = np.asarray(ordinal, dtype=np.float64)
        if wanted.shape != (len(self.names),) or not np.isfinite(wanted).all():
            raise ValueError(f"expected {len(self.names)} finite level indices, got {ordinal}")
        distance = np.zeros(len(self))
        for position, count in enumerate(self._radix.counts):
            steps = np.abs(np.arange(count) - wanted[position]) / max(1, count - 1)
            distance += steps[self.indices[:, position]]
        if exclude is not None:
            distance[exclude] = math.inf
        row = int(distance.argmin())
        return None if math.isinf(distance[row]) else row

    @cached_property
    def removed_by(self) -> Mapping[str, int]:
        """Constraint → how many points of the product it excludes on its own.

        Exact where its own parameters have few combinations, else estimated from a fixed sample.
        """
        return _removed_by(self._feasibility)

    def _row_of(self, indices: Sequence[int]) -> int | None:
        columns = [np.array([index]) for index in indices]
        found = int(self._rows.find(self._radix.encode(columns, range(len(indices))))[0])
        return None if found < 0 else found

    @cached_property
    def _one_parameter_changes(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Position and level of every (parameter, level) pair."""
        counts = np.array(self._radix.counts, dtype=np.int64)
        position = np.repeat(np.arange(len(counts)), counts)
        first = np.repeat(np.cumsum(counts) - counts, counts)
        return position, np.arange(len(position)) - first

    @cached_property
    def _words(self) -> npt.NDArray[np.int64]:
        return np.array(self._radix.word, dtype=np.int64)

    @cached_property
    def _strides(self) -> npt.NDArray[np.int64]:
        return np.array(self._radix.stride, dtype=np.int64)


def build_space(
    params: Sequence[ParamSpec],
    constraints: Sequence[Expression],
    constants: Mapping[str, Value],
    derived: Mapping[str, Expression] = MappingProxyType({}),
    max_points: int = 20_000_000,
) -> Space:
    """The points of the product of `params` that satisfy every constraint.

    Constraints use parameters, `constants` and `derived` names, which stand for expressions over all
    three. No parameters at all make a space of one empty point.

    Raises ConfigError for unusable levels or names, for more than `max_points` feasible points, and for
    constraints that would take too long to join; ExpressionError for an unknown name;
    NoValidConfiguration where nothing satisfies the constraints, naming what removes most.
    """
    feasibility = Feasibility(params, constraints, constants, derived)
    for rule in feasibility.rules:
        if not rule.positions and not feasibility.holds(rule, [])[0]:
            raise NoValidConfiguration(
                f"no configuration satisfies the constraints: {feasibility.explain(rule, {})}",
                hint="no parameter can change that: change the problem, the target or the constraint",
            )
    radix = MixedRadix.of(feasibility.counts)
    codes = _feasible_codes(feasibility, radix, min(max_points, MAX_ROWS))
    return Space(feasibility, radix, radix.sort(codes))


def space_of_points(params: Sequence[ParamSpec], points: Sequence[Point]) -> Space:
    """The space that holds exactly `points`, choices of the levels of `params`, whatever rules them.

    Raises ConfigError for unusable levels or names and for a point that is no choice of levels.
    """
    feasibility = Feasibility(params, (), {}, {})
    rows = []
    for point in points:
        indices = feasibility.indices_of(point)
        if isinstance(indices, str):
            raise ConfigError(f"{point}: {indices}")
        rows.append(indices)
    radix = MixedRadix.of(feasibility.counts)
    columns = np.array(rows, dtype=np.int64).reshape(len(rows), len(feasibility.counts)).T
    codes = radix.encode(list(columns), range(len(columns)))
    return Space(feasibility, radix, radix.sort(codes))


def _feasible_codes(feasibility: Feasibility, radix: MixedRadix, max_points: int) -> npt.NDArray[np.int64]:
    """Codes of all feasible points: the components' points, multiplied."""
    parts, too_many = [], None
    for component in components(feasibility):
        try:
            part = component.codes(radix, max_points, _CANDIDATES_PER_POINT * max_points)
        except TooManyPoints as limit:
            too_many = too_many or limit
            continue
        if part.shape[1] == 0:
            raise _nothing_left(feasibility)
        parts.append(radix.sort(part))
    total = math.prod(part.shape[1] for part in parts)
    if too_many is not None or total > max_points:
        raise _too_many(feasibility, total, too_many, max_points)
    codes = np.zeros((len(radix.sizes), 1), dtype=np.int64)
    # From the last part on, so that the inner loops of the sums are long.
    for part in reversed(parts):
        codes = (part[:, :, None] + codes[:, None, :]).reshape(len(codes), -1)
    return codes


def _too_many(
    feasibility: Feasibility, total: int, limit: TooManyPoints | None, max_points: int
) -> ConfigError:
    product = f"of {feasibility.product_size:,} combinations"
    hint = "add constraints, or give the parameters fewer levels"
    if limit is not None and limit.points <= max_points:
        return ConfigError(
            f"the constraints are too loose to join: {limit.candidates:,} partial combinations looked at"
            f" {product}, {limit.points:,} feasible points found",
            hint=hint + "; constraints on few parameters prune soonest",
        )
    found = f"{total:,}" if limit is None else f"more than {max_points:,}"
    return ConfigError(
        f"the space has {found} feasible points {product}; at most {max_points:,} are kept", hint=hint
    )


def _removed_by(feasibility: Feasibility) -> dict[str, int]:
    return {c.text: feasibility.removed_alone(c) for c in feasibility.constraints}


def _nothing_left(feasibility: Feasibility) -> NoValidConfiguration:
    """Names what removes most, with counts, and the numbers of the first violation at the defaults."""
    product = feasibility.product_size
    removed = sorted(_removed_by(feasibility).items(), key=lambda item: -item[1])[:_SHOWN_CONSTRAINTS]
    shown = "; ".join(f"{text} alone removes {count:,}" for text, count in removed if count)
    default = Point(tuple(zip(feasibility.names, feasibility.defaults, strict=True)))
    indices = feasibility.indices_of(default)
    example = None if isinstance(indices, str) else feasibility.violation(indices)
    return NoValidConfiguration(
        f"no configuration satisfies the constraints: 0 of {product:,} are left; {shown}",
        hint=f"at the default: {example}" if example else "relax a constraint, or add levels",
    )


def _nearest_on_each_side(
    position: npt.NDArray[np.int64],
    level: npt.NDArray[np.int64],
    own: npt.NDArray[np.int64],
    feasible: npt.NDArray[np.bool_],
) -> npt.NDArray[np.bool_]:
    """Of the feasible changes, the nearest below and the nearest above for each parameter."""
    nearest = np.zeros_like(feasible)
    candidates = np.flatnonzero(feasible)
    side = 2 * position[candidates] + (level[candidates] > own[position[candidates]])
    gap = np.abs(level[candidates] - own[position[candidates]])
    order = np.lexsort((gap, side))
    _, first = np.unique(side[order], return_index=True)
    nearest[candidates[order[first]]] = True
    return nearest
