"""Constraint, launch and size expressions: `parse` one, then evaluate it on numbers or on columns.

    tile = parse("ceil(M / bm)", where="grid x")
    tile.evaluate_int({"M": 1000, "bm": 64}, what="grid x")          # 16
    parse("2 * bm * 4 <= 49152").evaluate_columns({"bm": levels})   # a bool an element

The language: integers, floats, strings, `True`, `False`; names; `+ - * / // % **`; chained comparisons;
`in` a list of literals; `and`, `or`, `not` (their result is a bool); `a if c else b`; and the functions
`min max abs ceil floor ceil_div log2 int`. Integers are exact and at most 2**63 - 1 in magnitude; `/` is
true division, and `ceil`, `floor` or `int` directly around it are exact on integers.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.errors import ExpressionError
from sweeper.expressions.arithmetic import Fault, FaultKind, evaluate, first_failing, lookup, plain, truth
from sweeper.expressions.columns import evaluate_columns
from sweeper.expressions.parser import parse_tree
from sweeper.expressions.syntax import (
    MAX_MAGNITUDE,
    Binary,
    Comparison,
    Conditional,
    Link,
    Literal,
    Logic,
    Name,
    Node,
    Unary,
    Value,
    children,
    names_in,
    render,
    shorten,
)

__all__ = ["Expression", "Value", "parse"]

_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def parse(text: Value, *, where: str = "expression") -> Expression:
    """The expression written as `text`; `where` names its place for error messages.

    Raises ExpressionError naming the text, the place and the offending piece.
    """
    if isinstance(text, float):
        if not math.isfinite(text):
            raise ExpressionError(f"{where}: {text} is not a number to compute with")
        text = float.__repr__(text)
    elif isinstance(text, int):
        if abs(text) > MAX_MAGNITUDE:
            raise ExpressionError(f"{where}: the number does not fit 64 bits")
        text = repr(text)
    if not isinstance(text, str):
        raise ExpressionError(f"{where}: expected an expression or a number, got {type(text).__name__}")
    stripped = " ".join(text.splitlines()).strip() if len(text) <= 10_000 else text
    tree = parse_tree(stripped, where=where)
    return Expression(stripped, tree, frozenset(names_in(tree)))


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression: equal and hashed by its text; `names` are its variables."""

    text: str
    tree: Node = field(compare=False, repr=False)
    names: frozenset[str] = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.text

    def evaluate(self, scope: Mapping[str, Value]) -> Value:
        """The value at `scope`.

        Raises ExpressionError for an unknown name, a zero divisor, a result beyond the limits, or an
        operation on text, with the operands' values.
        """
        self.check_names(scope)
        try:
            return evaluate(self.tree, scope)
        except Fault as fault:
            raise ExpressionError(self._fault_message(fault, scope)) from None

    def evaluate_int(self, scope: Mapping[str, Value], *, what: str) -> int:
        """The value as an integer; `what` names the quantity in the error. An integral float counts.

        Raises ExpressionError as `evaluate`, and for text, a truth value or a fraction.
        """
        value = self.evaluate(scope)
        shown = f"{what} = {self.text}" + ("" if isinstance(self.tree, Literal) else f" = {_show(value)}")
        if isinstance(value, bool | str):
            kind = "text" if isinstance(value, str) else "a truth value"
            raise ExpressionError(f"{shown} is {kind}, not a whole number")
        if not float(value).is_integer():
            raise ExpressionError(f"{shown} is not a whole number{self._whole_number_advice()}")
        return int(value)

    def evaluate_columns(self, scope: Mapping[str, npt.NDArray[Any] | Value]) -> npt.NDArray[Any]:
        """`evaluate` on every row of equally long one-dimensional columns; plain values are broadcast.

        Rows without a value (a zero divisor, a result beyond the limits) yield False, 0 or "", as
        does `evaluate_columns_masked`, which says which they are. Nothing wraps or loses precision: where
        64 bits might not do, those rows are evaluated one by one. The dtype is bool, int64, float64,
        str, or object where rows differ in type.

        Raises ExpressionError for an unknown name and for an operation on text.
        """
        return self.evaluate_columns_masked(scope)[0]

    def evaluate_columns_masked(
        self, scope: Mapping[str, npt.NDArray[Any] | Value]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """The values of `evaluate_columns`, and a mask of the rows that have none."""
        self.check_names(scope)
        values, faults = evaluate_columns(self.tree, scope)
        mistyped = faults == FaultKind.TYPE
        if mistyped.any():
            row = int(mistyped.argmax())
            raise ExpressionError(self.explain({name: _at(scope[name], row) for name in self.names}))
        return values, faults != FaultKind.NONE

    def explain(self, scope: Mapping[str, Value]) -> str:
        """The comparison that decides, with its numbers: `2 * bm * 4 <= 512: 1024 > 512 (bm = 128)`.

        Of an `and` only the first operand that fails is explained, of a chained comparison the failing
        link, of a failing `or` every operand. Where the condition has no value, the text says why.
        The variables follow in parentheses unless a side of the comparison already is one.
        Raises ExpressionError for an unknown name.
        """
        self.check_names(scope)
        try:
            truth(evaluate(self.tree, scope))
            return _explain(self.tree, scope)
        except Fault as fault:
            return self._fault_message(fault, scope)

    def conjuncts(self) -> tuple[Expression, ...]:
        """The operands of a top-level `and`, which must all hold; else the expression itself."""
        if not (isinstance(self.tree, Logic) and self.tree.op == "and"):
            return (self,)
        return tuple(Expression(render(t), t, frozenset(names_in(t))) for t in self.tree.operands)

    def check_names(self, known: Iterable[str]) -> None:
        """Raise ExpressionError naming the first variable that is not `known`, and the nearest that is."""
        known = known if isinstance(known, Mapping | set | frozenset) else set(known)
        if all(name in known for name in self.names):
            return
        missing = next(name for name in names_in(self.tree) if name not in known)
        raise ExpressionError(
            f"unknown name {missing!r} in {shorten(self.text)!r}", hint=_nearest(missing, known)
        )

    def _fault_message(self, fault: Fault, scope: Mapping[str, Value]) -> str:
        node = fault.node or self.tree
        whole = "" if node == self.tree else f", in {shorten(self.text)!r}"
        values = _values(node, scope)
        return f"{fault.message} in {shorten(render(node))}{values}{whole}"

    def _whole_number_advice(self) -> str:
        match self.tree:
            case Binary("/", left, right):
                return f"; use ceil_div({render(left)}, {render(right)})"
        return ""


def _at(column: npt.NDArray[Any] | Value, row: int) -> Value:
    """The value of a column, or of what is broadcast as one, in one row."""
    return plain(column[row] if isinstance(column, np.ndarray) and column.ndim else column)


def _nearest(name: str, known: Iterable[str]) -> str:
    folded = {other.casefold(): other for other in known}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    if close:
        return f"did you mean {folded[close[0]]!r}?"
    return "known names: " + (", ".join(sorted(known)) or "none")


def _show(value: Value) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _values(node: Node, scope: Mapping[str, Value]) -> str:
    """` (a = 3, b = 0)` for the variables of `node`."""
    shown = []
    for name in names_in(node):
        try:
            shown.append(f"{name} = {_show(lookup(scope, name))}")
        except (Fault, ExpressionError):
            shown.append(f"{name} has no value")
    return f" ({', '.join(shown)})" if shown else ""


def _explain(node: Node, scope: Mapping[str, Value]) -> str:
    match node:
        case Comparison():
            return _explain_comparison(node, scope)
        case Logic("and"):
            failing = (item for item in node.operands if not truth(evaluate(item, scope)))
            item = next(failing, None)
            if item is not None:
                return _explain(item, scope)
            return "; ".join(_explain(item, scope) for item in node.operands)
        case Logic("or"):
            for item in node.operands:
                if truth(evaluate(item, scope)):
                    return _explain(item, scope)
            return f"{render(node)}: none holds: " + "; ".join(
                _explain(item, scope) for item in node.operands
            )
        case Conditional():
            taken = node.then if truth(evaluate(node.test, scope)) else node.otherwise
            return _explain(taken, scope)
        case Unary("not"):
            return f"{render(node)}: {_explain(node.operand, scope)}"
    return f"{render(node)}: {_show(evaluate(node, scope))}{_values(node, scope)}"


def _explain_comparison(node: Comparison, scope: Mapping[str, Value]) -> str:
    """The failing link of a comparison, or its first link where all hold."""
    failing = first_failing(node, scope)
    index = failing[0] if failing else 0
    sides = [node.first] + [link.right for link in node.links if not isinstance(link.right, tuple)]
    left, link = sides[index], node.links[index]
    shown = render(Comparison(left, (link,)))
    left_value = evaluate(left, scope)
    if isinstance(link.right, tuple):
        inside = (link.op == "in") == (failing is None)
        members = ", ".join(render(member) for member in link.right)
        verdict = f"{_show(left_value)} is {'' if inside else 'not '}one of {members}"
        return f"{shown}: {verdict}{_unless_shown(left, scope)}"
    right_value = evaluate(link.right, scope)
    op = link.op if failing is None else _NEGATED[link.op]
    names = _unless_shown(Comparison(left, (Link(link.op, link.right),)), scope)
    return f"{shown}: {_show(left_value)} {op} {_show(right_value)}{names}"


def _unless_shown(node: Node, scope: Mapping[str, Value]) -> str:
    """The variables' values, unless every side that has any is a bare variable."""
    sides = children(node) if isinstance(node, Comparison) else (node,)
    plain = all(isinstance(side, Name) or not names_in(side) for side in sides)
    return "" if plain else _values(node, scope)
