"""Which choices of levels the constraints allow: the one place that decides it, for every path.

Constraints refer to parameters, to constants, and to derived names, which stand for expressions over
all three. A top-level `and` is split, so that each half can prune as soon as its own parameters are
known. A row on which a constraint has no value (a zero divisor, say) is infeasible.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sweeper.errors import ConfigError, ExpressionError
from sweeper.expressions import Expression, Value
from sweeper.expressions.arithmetic import FaultKind
from sweeper.expressions.columns import evaluate_columns
from sweeper.expressions.syntax import MAX_MAGNITUDE, Logic, Name, Node
from sweeper.model import ParamSpec, Point
from sweeper.space.bounds import interval_of, may_hold

__all__ = ["TABLE_CELLS", "Feasibility", "Rule"]

TABLE_CELLS: Final = 1 << 18
"""A rule is tabulated over all its own parameters' levels up to this many combinations."""

_MAX_DERIVED_DEPTH: Final = 32

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """One conjunct of a constraint; `positions` are the parameters that it depends on, ascending."""

    constraint: Expression
    condition: Expression
    positions: tuple[int, ...]


class Feasibility:
    """Parameters with their levels, and the rules among them.

    Raises ConfigError for empty, repeated or unusable levels, for a name with two meanings, and for
    derived names that depend on themselves; ExpressionError for an unknown name.
    """

    def __init__(
        self,
        params: Sequence[ParamSpec],
        constraints: Sequence[Expression],
        constants: Mapping[str, Value],
        derived: Mapping[str, Expression],
    ) -> None:
        self.names = tuple(param.name for param in params)
        self.levels = tuple(tuple(param.levels) for param in params)
        self.defaults = tuple(param.default for param in params)
        self.constants = dict(constants)
        self.constraints = tuple(constraints)
        _check_names(self.names, self.constants, derived)
        self.derived = {name: value for name, value in derived.items() if name not in self.names}
        self.ranks = tuple(_ranks(*item) for item in zip(self.names, self.levels, strict=True))
        self.values = tuple(_level_values(levels) for levels in self.levels)
        self._definitions = {name: expression.tree for name, expression in self.derived.items()}
        self._closures = self._close_derived()
        self.rules = tuple(self._rule(c, part) for c in self.constraints for part in c.conjuncts())

    @property
    def counts(self) -> tuple[int, ...]:
        """Levels of each parameter."""
        return tuple(len(levels) for levels in self.levels)

    @property
    def product_size(self) -> int:
        return math.prod(self.counts)

    def holds(self, rule: Rule, indices: Sequence[Array]) -> Array:
        """Whether `rule` holds on rows of level indices, given as one column for each of its positions."""
        return self._decide(rule.condition, rule.positions, indices)[0]

    def may_hold(self, rule: Rule, indices: Mapping[int, Array]) -> Array:
        """False for rows on which `rule` cannot hold whatever the parameters not in `indices` are."""
        intervals = {name: interval_of([value]) for name, value in self.constants.items()}
        for position in rule.positions:
            chosen = indices.get(position)
            values = self.values[position] if chosen is None else self.values[position][chosen]
            intervals[self.names[position]] = interval_of(values, each=chosen is not None)
        possible = may_hold(rule.condition.tree, intervals, self._definitions)
        return np.broadcast_to(possible, len(next(iter(indices.values()))))

    def table(self, rule: Rule) -> Array:
        """`holds` for every combination of the levels of the rule's own parameters, an axis for each.

        Raises ExpressionError where not one combination has operands of a usable type.
        """
        shape = tuple(self.counts[position] for position in rule.positions)
        flat, faults = self._decide(rule.condition, rule.positions, list(_grid(shape)))
        if (faults == FaultKind.TYPE).all():
            shown = self.explain(rule, dict.fromkeys(rule.positions, 0))
            raise ExpressionError(f"constraint {rule.constraint.text!r} has no value at any level: {shown}")
        return flat.reshape(shape)

    def removed_alone(self, constraint: Expression, *, samples: int = TABLE_CELLS) -> int:
        """How many points of the product `constraint` alone excludes.

        Exact up to `samples` combinations of its own parameters' levels, else estimated from as many
        combinations drawn with a fixed seed.
        """
        positions = self._positions(constraint)
        counts = tuple(self.counts[position] for position in positions)
        combinations = math.prod(counts)
        if combinations <= samples:
            holds = self._decide(constraint, positions, list(_grid(counts)))[0]
        else:
            rng = np.random.Generator(np.random.PCG64(0))
            drawn = [rng.integers(0, count, size=samples) for count in counts]
            holds = self._decide(constraint, positions, drawn)[0]
        return self.product_size * int(np.count_nonzero(~holds)) // len(holds)

    def violation(self, indices: Sequence[int]) -> str | None:
        """The first constraint that the choice of level `indices` violates, with its numbers, or None."""
        for rule in self.rules:
            columns = [np.array([indices[position]]) for position in rule.positions]
            if not self.holds(rule, columns)[0]:
                return self.explain(rule, dict(enumerate(indices)))
        return None

    def explain(self, rule: Rule, indices: Mapping[int, int]) -> str:
        """The numbers of `rule` where the parameters at the given positions have these level indices."""
        try:
            return rule.condition.explain(self.scope(indices))
        except ExpressionError as error:
            return f"{error.message}, in {rule.condition.text!r}"

    def indices_of(self, point: Point) -> tuple[int, ...] | str:
        """The level indices of `point`, or why it is not a choice of levels."""
        params = point.params
        unknown = next((name for name in params if name not in self.names), None)
        if unknown is not None:
            close = difflib.get_close_matches(unknown, self.names, n=1)
            advice = (
                f"did you mean {close[0]!r}?" if close else f"parameters: {', '.join(self.names) or 'none'}"
            )
            return f"unknown parameter {unknown!r}; {advice}"
        missing = [name for name in self.names if name not in params]
        if missing:
            return f"no value for parameter {', '.join(map(repr, missing))}"
        for name, ranks in zip(self.names, self.ranks, strict=True):
            if params[name] not in ranks:
                return f"{name} = {params[name]!r} is not one of its levels {', '.join(map(repr, ranks))}"
        return tuple(ranks[params[name]] for name, ranks in zip(self.names, self.ranks, strict=True))

    def scope(self, indices: Mapping[int, int]) -> Mapping[str, Value]:
        """Every name's value where the parameters at the given positions have the given level indices."""
        chosen = {self.names[position]: self.levels[position][index] for position, index in indices.items()}
        return _Scope({**self.constants, **chosen}, self.derived)

    def _decide(
        self, condition: Expression, positions: Sequence[int], indices: Sequence[Array]
    ) -> tuple[Array, Array]:
        scope: dict[str, Array | Value] = dict(self.constants)
        for position, column in zip(positions, indices, strict=True):
            scope[self.names[position]] = self.values[position][column]
        values, faults = evaluate_columns(_as_truth(condition.tree), scope, self._definitions)
        return values, faults

    def _rule(self, constraint: Expression, condition: Expression) -> Rule:
        return Rule(constraint, condition, self._positions(condition))

    def _positions(self, expression: Expression) -> tuple[int, ...]:
        expression.check_names({*self.names, *self.constants, *self.derived})
        names = set().union(*(self._closures.get(name, {name}) for name in expression.names))
        return tuple(position for position, name in enumerate(self.names) if name in names)

    def _close_derived(self) -> dict[str, frozenset[str]]:
        """Each derived name's names that are not derived themselves."""
        known = {*self.names, *self.constants, *self.derived}
        closures: dict[str, frozenset[str]] = {}

        def close(name: str, path: tuple[str, ...]) -> frozenset[str]:
            if name not in self.derived:
                return frozenset((name,))
            if name in path or len(path) >= _MAX_DERIVED_DEPTH:
                circle = " → ".join((*path[path.index(name) if name in path else 0 :], name))
                raise ConfigError(f"derived names depend on each other in a circle or too deeply: {circle}")
            if name not in closures:
                self.derived[name].check_names(known)
                parts = (close(other, (*path, name)) for other in sorted(self.derived[name].names))
                closures[name] = frozenset().union(*parts)
            return closures[name]

        for name in self.derived:
            close(name, ())
        return closures


def _as_truth(tree: Node) -> Node:
    """`tree` as a condition: its value as a bool."""
    return Logic("and", (tree,))


def _grid(shape: tuple[int, ...]) -> Iterator[Array]:
    """The index column of each axis over all cells of `shape`, the last axis fastest."""
    before, after = 1, math.prod(shape)
    for count in shape:
        after //= count
        yield np.tile(np.repeat(np.arange(count), after), before)
        before *= count


def _check_names(
    names: tuple[str, ...], constants: Mapping[str, Value], derived: Mapping[str, Expression]
) -> None:
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise ConfigError(f"parameter {repeated!r} is declared twice")
    for name in names:
        if name in constants:
            raise ConfigError(
                f"parameter {name!r} has the name of a constant, {name} = {constants[name]!r}",
                hint="rename the parameter",
            )
        if name in derived and derived[name].tree != Name(name):
            raise ConfigError(
                f"parameter {name!r} has the name of a derived value, {name} = {derived[name].text}",
                hint="rename the parameter",
            )
    both = next((name for name in derived if name in constants), None)
    if both is not None:
        raise ConfigError(f"{both!r} is both a constant and a derived value")


def _ranks(name: str, levels: tuple[Value, ...]) -> dict[Value, int]:
    """Level → index."""
    if not levels:
        raise ConfigError(f"parameter {name!r} has no levels", hint="list at least one value")
    ranks: dict[Value, int] = {}
    for index, level in enumerate(levels):
        if not isinstance(level, bool | int | float | str):
            raise ConfigError(f"parameter {name!r}: level {level!r} is not a number, text or truth value")
        if not isinstance(level, str) and not abs(level) <= MAX_MAGNITUDE:
            raise ConfigError(f"parameter {name!r}: level {level!r} is not a number within 64 bits")
        if level in ranks:
            other = levels[ranks[level]]
            same = "occurs twice" if repr(other) == repr(level) else f"equals its level {other!r}"
            raise ConfigError(f"parameter {name!r}: level {level!r} {same}", hint="list each value once")
        ranks[level] = index
    return ranks


def _level_values(levels: tuple[Value, ...]) -> Array:
    """The levels as an array that keeps each one's exact value and type."""
    types = {type(level) for level in levels}
    if types in ({bool}, {int}, {float}) or (types == {str} and not any("\0" in str(v) for v in levels)):
        return np.array(levels)
    values = np.empty(len(levels), dtype=object)
    values[:] = levels
    return values


class _Scope(Mapping[str, Value]):
    """Values by name; a derived name is evaluated when it is asked for."""

    def __init__(self, values: Mapping[str, Value], derived: Mapping[str, Expression]) -> None:
        self._values = dict(values)
        self._derived = derived

    def __getitem__(self, name: str) -> Value:
        if name not in self._values:
            try:
                self._values[name] = self._derived[name].evaluate(self)
            except ExpressionError as error:
                raise ExpressionError(f"{name} has no value: {error.message}") from None
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._values, **self._derived})

    def __len__(self) -> int:
        return len({**self._values, **self._derived})

    def __contains__(self, name: object) -> bool:
        return name in self._values or name in self._derived
