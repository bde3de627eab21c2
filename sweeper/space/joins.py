"""Feasible points by progressive joins: one parameter after the other, pruned at each step.

Parameters that share a rule form a component; components are independent, so that each is joined on
its own and only the results are multiplied. Within a component every rule with few enough combinations
is a table, and its projection onto the parameters joined so far prunes before the rule is complete; a
rule with too many is bounded over the levels of the parameters that are not joined yet. Rows are extended
block by block, depth first, so that memory stays bounded however large an intermediate result is; the
product itself is never built.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sweeper.space.feasibility import TABLE_CELLS, Feasibility, Rule
from sweeper.space.mixed_radix import MixedRadix

__all__ = ["Component", "TooManyPoints", "components"]

_BLOCK_CELLS: Final = 1 << 18
"""Candidates (rows × levels of the next parameter) looked at in one step."""

_UNKNOWN_SELECTIVITY: Final = 0.5
"""Assumed share of rows that a rule too large to tabulate leaves."""

Array: TypeAlias = npt.NDArray[Any]


class TooManyPoints(Exception):
    """A component has more points than allowed, or took too many candidates to find them."""

    def __init__(self, points: int, candidates: int) -> None:
        super().__init__(points, candidates)
        self.points = points
        self.candidates = candidates


@dataclass(frozen=True, slots=True)
class _Step:
    """Joins the parameter at `position`: tables of (codes of joined parameters, its levels), and the
    rules without a table that it completes, or that it leaves undecided."""

    position: int
    tables: tuple[tuple[Array, tuple[int, ...], tuple[int, ...]], ...]
    complete: tuple[Rule, ...]
    partial: tuple[Rule, ...]


def components(feasibility: Feasibility) -> list[Component]:
    """The independent groups of parameters, by their first parameter."""
    group = list(range(len(feasibility.names)))
    for rule in feasibility.rules:
        merged = {group[position] for position in rule.positions}
        group = [min(merged) if g in merged else g for g in group]
    return [
        Component(feasibility, tuple(p for p, g in enumerate(group) if g == leader))
        for leader in sorted(set(group))
    ]


class Component:
    """Parameters linked by rules, directly or through others."""

    def __init__(self, feasibility: Feasibility, positions: tuple[int, ...]) -> None:
        self.feasibility = feasibility
        self.positions = positions
        self.rules = [rule for rule in feasibility.rules if rule.positions and rule.positions[0] in positions]
        counts = feasibility.counts
        self._tables = {
            index: feasibility.table(rule)
            for index, rule in enumerate(self.rules)
            if math.prod(counts[position] for position in rule.positions) <= TABLE_CELLS
        }
        self._projections: dict[tuple[int, frozenset[int]], Array] = {}

    def codes(self, radix: MixedRadix, max_points: int, max_candidates: int) -> Array:
        """Codes (words, rows) of the feasible choices of these parameters, in no particular order.

        Raises TooManyPoints beyond `max_points`, or after looking at `max_candidates`.
        """
        order = self.join_order()
        join = _Join(self.feasibility, order, self._steps(order), max_points, max_candidates)
        codes = [radix.encode(columns, order) for columns in join.blocks()]
        return np.concatenate(codes, axis=1) if codes else np.zeros((len(radix.sizes), 0), dtype=np.int64)

    def join_order(self) -> list[int]:
        """Greedy: next comes the parameter whose rules let the rows grow least; ties in given order."""
        order: list[int] = []
        rest = list(self.positions)
        while rest:
            following = min(rest, key=lambda position: (self._growth(order, position), position))
            order.append(following)
            rest.remove(following)
        return order

    def _growth(self, joined: Sequence[int], position: int) -> float:
        """Estimated rows after joining `position`, as a multiple of the rows before."""
        growth = float(self.feasibility.counts[position])
        before, after = frozenset(joined), frozenset((*joined, position))
        for index, rule in enumerate(self.rules):
            if position not in rule.positions:
                continue
            if index in self._tables:
                kept = self._density(index, before)
                growth *= self._density(index, after) / kept if kept else 0.0
            elif after.issuperset(rule.positions):
                growth *= _UNKNOWN_SELECTIVITY
        return growth

    def _density(self, index: int, joined: frozenset[int]) -> float:
        return float(self._projection(index, joined).mean())

    def _projection(self, index: int, joined: frozenset[int]) -> Array:
        """A rule's table over its `joined` parameters: whether any choice of the others fits."""
        positions = self.rules[index].positions
        key = index, joined.intersection(positions)
        if key not in self._projections:
            others = tuple(axis for axis, position in enumerate(positions) if position not in joined)
            self._projections[key] = np.asarray(self._tables[index].any(axis=others))
        return self._projections[key]

    def _steps(self, order: Sequence[int]) -> list[_Step]:
        return [self._step(order[:number], position) for number, position in enumerate(order)]

    def _step(self, joined: Sequence[int], position: int) -> _Step:
        tables, complete, partial = [], [], []
        now = frozenset((*joined, position))
        for index, rule in enumerate(self.rules):
            if position not in rule.positions:
                continue
            if index in self._tables:
                tables.append(self._lookup(index, joined, position))
            elif now.issuperset(rule.positions):
                complete.append(rule)
            else:
                partial.append(rule)
        return _Step(position, tuple(tables), tuple(complete), tuple(partial))

    def _lookup(
        self, index: int, joined: Sequence[int], position: int
    ) -> tuple[Array, tuple[int, ...], tuple[int, ...]]:
        """A projection as a matrix (joined combinations, levels), with columns and strides of its rows."""
        table = self._projection(index, frozenset((*joined, position)))
        axes = [p for p in self.rules[index].positions if p == position or p in joined]
        table = np.moveaxis(table, axes.index(position), -1)
        axes.remove(position)
        strides = [math.prod(table.shape[axis + 1 : -1]) for axis in range(len(axes))]
        matrix = np.ascontiguousarray(table.reshape(-1, table.shape[-1]))
        return matrix, tuple(joined.index(p) for p in axes), tuple(strides)


class _Join:
    """The depth-first extension of rows along `order`, with its limits."""

    def __init__(
        self,
        feasibility: Feasibility,
        order: Sequence[int],
        steps: Sequence[_Step],
        max_points: int,
        max_candidates: int,
    ) -> None:
        self.feasibility = feasibility
        self.order = order
        self.steps = steps
        self.max_points = max_points
        self.max_candidates = max_candidates
        self.found = 0
        self.candidates = 0

    def blocks(self) -> Iterator[list[Array]]:
        """Blocks of complete rows, as columns in join order."""
        return self._extend(0, [], 1)

    def _extend(self, number: int, columns: list[Array], rows: int) -> Iterator[list[Array]]:
        if number == len(self.steps):
            self.found += rows
            if self.found > self.max_points:
                raise TooManyPoints(self.found, self.candidates)
            yield columns
            return
        count = self.feasibility.counts[self.steps[number].position]
        height = max(1, _BLOCK_CELLS // count)
        for start in range(0, rows, height):
            part = [column[start : start + height] for column in columns]
            extended = self._join(number, part, min(height, rows - start), count)
            if len(extended[0]):
                yield from self._extend(number + 1, extended, len(extended[0]))

    def _join(self, number: int, columns: list[Array], rows: int, count: int) -> list[Array]:
        """`columns` with the levels of the next parameter that fit each row."""
        self.candidates += rows * count
        if self.candidates > self.max_candidates:
            raise TooManyPoints(self.found, self.candidates)
        step = self.steps[number]
        allowed = np.ones((rows, count), dtype=bool)
        for matrix, used, strides in step.tables:
            if not used:
                allowed &= matrix
                continue
            codes = np.zeros(rows, dtype=np.int64)
            for column, stride in zip(used, strides, strict=True):
                codes += columns[column] * np.int64(stride)
            allowed &= matrix[codes]
        flat = np.flatnonzero(allowed)
        row = flat // count
        extended = [column[row] for column in columns]
        extended.append((flat - row * count).astype(np.int32))
        joined = self.order[: number + 1]
        for rule in step.partial:
            chosen = dict(zip(joined, extended, strict=True))
            possible = self.feasibility.may_hold(rule, chosen)
            extended = [column[possible] for column in extended]
        for rule in step.complete:
            holds = self.feasibility.holds(rule, [extended[self.order.index(p)] for p in rule.positions])
            extended = [column[holds] for column in extended]
        return extended
