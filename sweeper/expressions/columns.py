"""Expressions on whole NumPy columns, with the meaning that `arithmetic` gives to single values.

Each node yields a `Column`: an array (or one value for all rows) and a code for each row that has no
value, so that `b == 0 or a % b == 0` holds where `b` is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import numpy as np

from sweeper.expressions import arithmetic
from sweeper.expressions.column import (
    EXACT_FLOAT,
    Array,
    Column,
    Faults,
    apply,
    first_fault,
    load,
    plain_faults,
    plain_values,
    row_by_row,
    text_fault,
    with_bounds,
)
from sweeper.expressions.column_arithmetic import binary, call, rounded_quotient
from sweeper.expressions.syntax import (
    Binary,
    Call,
    Comparison,
    Conditional,
    Literal,
    Logic,
    Name,
    Node,
    Unary,
    Value,
    names_in,
)

__all__ = ["evaluate_columns"]


def evaluate_columns(
    node: Node,
    scope: Mapping[str, Array | Value],
    definitions: Mapping[str, Node] = MappingProxyType({}),
) -> tuple[Array, Array]:
    """The values of `node` on every row and a FaultKind for each; both one-dimensional.

    `definitions` are names that stand for expressions, evaluated once, where they are used.
    """
    evaluator = _Evaluator(scope, definitions)
    rows = evaluator.rows(node)
    with np.errstate(all="ignore"):
        column = evaluator.column(node)
    faults = np.broadcast_to(np.asarray(column.faults, dtype=np.uint8), rows)
    values = np.array(np.broadcast_to(np.asarray(column.values), rows))
    values[faults != 0] = np.zeros((), values.dtype)
    return values, faults


class _Evaluator:
    """Nodes → columns over one scope."""

    def __init__(self, scope: Mapping[str, Array | Value], definitions: Mapping[str, Node]) -> None:
        self.scope = scope
        self.definitions = definitions
        self.named: dict[str, Column] = {}

    def rows(self, node: Node) -> int:
        """The common length of the columns that `node` uses; 1 where it uses none."""
        lengths: set[int] = set()
        pending, seen = list(names_in(node)), set()
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in self.definitions:
                pending.extend(names_in(self.definitions[name]))
            elif getattr(self.scope[name], "ndim", 0):
                lengths.add(len(self.scope[name]))  # type: ignore[arg-type]
        if len(lengths) > 1:
            raise ValueError(f"columns of different lengths: {sorted(lengths)}")
        return lengths.pop() if lengths else 1

    def column(self, node: Node) -> Column:
        match node:
            case Literal():
                return with_bounds(Column(node.value))
            case Name():
                return self.name(node.name)
            case Unary():
                return self.unary(node.op, self.column(node.operand))
            case Binary():
                return binary(node.op, self.column(node.left), self.column(node.right))
            case Comparison():
                return self.comparison(node)
            case Logic():
                return _logic(node.op, (_truth(self.column(operand)) for operand in node.operands))
            case Conditional():
                test = _truth(self.column(node.test))
                return _choose(test, self.column(node.then), self.column(node.otherwise))
            case Call():
                return self.call(node)

    def call(self, node: Call) -> Column:
        match node:
            case Call("ceil" | "floor" | "int" as function, (Binary("/", left, right),)):
                return rounded_quotient(function, self.column(left), self.column(right))
        return call(node.function, tuple(self.column(argument) for argument in node.arguments))

    def name(self, name: str) -> Column:
        if name not in self.named:
            definition = self.definitions.get(name)
            self.named[name] = load(self.scope[name]) if definition is None else self.column(definition)
        return self.named[name]

    def unary(self, op: str, operand: Column) -> Column:
        if op == "not":
            truth = _truth(operand)
            return Column(plain_values(np.logical_not(truth.values)), truth.faults)
        if op == "+":
            return binary("+", with_bounds(Column(0)), operand)
        return binary("-", with_bounds(Column(0)), operand)

    def comparison(self, node: Comparison) -> Column:
        def links() -> Iterable[Column]:
            left = self.column(node.first)
            for link in node.links:
                if isinstance(link.right, tuple):
                    yield _member(link.op, left, link.right)
                else:
                    right = self.column(link.right)
                    yield _compare(link.op, left, right)
                    left = right

        return _logic("and", links())


def _truth(column: Column) -> Column:
    def vector(faults: Faults) -> Column | None:
        if column.kind == "U":
            return replace(text_fault(faults), values=False)
        return Column(np.asarray(column.values) != 0, faults)

    return column if column.kind == "b" else apply(arithmetic.truth, vector, (column,))


def _compare(op: str, left: Column, right: Column) -> Column:
    kinds = left.kind + right.kind

    def vector(faults: Faults) -> Column | None:
        if "U" in kinds and op not in ("==", "!="):
            return text_fault(faults)
        if "U" in kinds and kinds != "UU":
            return Column(op == "!=", faults)
        integer = left if right.kind == "f" else right
        if kinds in ("if", "fi") and integer.magnitude > EXACT_FLOAT:
            return None
        return Column(np.asarray(arithmetic.COMPARE[op](left.values, right.values)), faults)

    return apply(partial(arithmetic.compare, op), vector, (left, right))


def _member(op: str, left: Column, members: tuple[Literal, ...]) -> Column:
    found = Column(False, left.faults)
    for member in members:
        found = _logic("or", (found, _compare("==", left, with_bounds(Column(member.value)))))
    return found if op == "in" else Column(plain_values(np.logical_not(found.values)), found.faults)


def _logic(op: str, operands: Iterable[Column]) -> Column:
    """`and` or `or` of bool columns; what would not have been evaluated has no faults."""
    combine = np.logical_and if op == "and" else np.logical_or
    columns = iter(operands)
    result = next(columns)
    for column in columns:
        faults = column.faults
        if not isinstance(faults, int) or faults:
            skipped = np.asarray(result.values) == (op == "or")
            faults = plain_faults(np.where(skipped, np.uint8(0), np.asarray(faults, np.uint8)))
        values = plain_values(combine(result.values, column.values))
        result = Column(values, first_fault(result.faults, faults))
    return result


def _choose(test: Column, then: Column, otherwise: Column) -> Column:
    """`then` in rows where `test` holds, `otherwise` elsewhere."""
    if not isinstance(test.values, np.ndarray):
        taken = then if test.values else otherwise
        return replace(taken, faults=first_fault(test.faults, taken.faults))
    taken_faults = np.where(test.values, np.asarray(then.faults), np.asarray(otherwise.faults))
    faults = first_fault(test.faults, taken_faults.astype(np.uint8))
    kinds = {then.kind, otherwise.kind}
    if len(kinds) == 1 or kinds == {"b", "i"}:
        values = np.where(test.values, then.values, otherwise.values)
        return Column(values, faults, min(then.low, otherwise.low), max(then.high, otherwise.high))
    mixed = Column(test.values, faults), then, otherwise
    return row_by_row(lambda holds, a, b: a if holds else b, mixed, faults)
