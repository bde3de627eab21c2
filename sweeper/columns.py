"""Expressions on whole NumPy columns, with the meaning that `arithmetic` gives to single values.

Each node yields a `Column`: an array (or one value for all rows) and a code for each row that has no
value, so that `b == 0 or a % b == 0` holds where `b` is 0. A vector operation is taken only where it
provably agrees with exact arithmetic: intervals of the integers involved are carried along, and what
might leave 64 bits (or 53, where NumPy converts to float64) is evaluated row by row instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sweeper import arithmetic
from sweeper.arithmetic import Fault, FaultKind
from sweeper.syntax import (
    MAX_MAGNITUDE,
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

_EXACT_FLOAT: Final = 2**53
"""Integers up to this magnitude are converted to float64 without rounding."""

Array: TypeAlias = npt.NDArray[Any]
Faults: TypeAlias = Array | int
"""A FaultKind for each row, or one for all of them."""


@dataclass(frozen=True, slots=True)
class Column:
    """One value a row.

    `values` is a plain value that stands for every row, or an array of bool, int64, float64, str or
    object. `faults` marks rows without a value, where `values` holds a filler of the same type. `low`
    and `high` bound integers (bools: 0 and 1; meaningless for other types).
    """

    values: Array | Value
    faults: Faults = 0
    low: int = 0
    high: int = 1

    @property
    def kind(self) -> str:
        """`b` bool, `i` integer, `f` float, `U` text, `O` mixed."""
        if isinstance(self.values, np.ndarray):
            return self.values.dtype.kind
        return {bool: "b", int: "i", float: "f", str: "U"}[type(self.values)]

    @property
    def magnitude(self) -> int:
        return max(-self.low, self.high)


def evaluate_columns(
    node: Node,
    scope: Mapping[str, Array | Value],
    definitions: Mapping[str, Node],
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


def _first_fault(first: Faults, second: Faults) -> Faults:
    """The earlier fault of each row."""
    if isinstance(first, int) or isinstance(second, int):
        if isinstance(first, int):
            return first or second
        if second == 0:
            return first
    return np.where(first, first, second)


def _plain(values: Any) -> Array | Value:
    """A zero-dimensional result as a plain value."""
    if isinstance(values, np.ndarray) and values.ndim:
        return values
    plain: Value = values.item() if hasattr(values, "item") else values
    return plain


def _with_faults(values: Any, faults: Faults, mask: Any, kind: FaultKind) -> Column:
    """A float column whose rows under `mask` have no value, if they had one before."""
    if np.any(mask):
        faults = _first_fault(faults, np.where(mask, np.uint8(kind), np.uint8(0)))
        values = np.where(mask, 0.0, values)
    return Column(_plain(values), faults)


def _pack(results: list[Any], faults: Array) -> Column:
    """A column of Python values; None marks a row without one."""
    types = {type(value) for value in results} - {type(None)}
    if types == {str} and not any("\0" in value for value in results if value is not None):
        return Column(np.array([value or "" for value in results]), faults)
    if types in ({bool}, {float}, {int}, set()):
        dtype = next(iter(types), int)
        values = np.array([dtype() if value is None else value for value in results], dtype=dtype)
        return _bounds(Column(values, faults))
    values = np.empty(len(results), dtype=object)
    values[:] = [0 if value is None else value for value in results]
    return Column(values, faults)


def _bounds(column: Column) -> Column:
    """`column` with the tightest bounds of its integers."""
    values = column.values
    if isinstance(values, np.ndarray):
        if values.dtype.kind == "i":
            low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
            return replace(column, low=low, high=high)
    elif isinstance(values, int):
        return replace(column, low=int(values), high=int(values))
    return column


def _row_by_row(function: Callable[..., Value], columns: tuple[Column, ...], faults: Faults) -> Column:
    """`function` of single values on every row of columns of which at least one is an array."""
    rows = next(c.values.shape[0] for c in columns if isinstance(c.values, np.ndarray))
    codes = np.array(np.broadcast_to(np.asarray(faults, dtype=np.uint8), rows))
    sources = (
        c.values.tolist() if isinstance(c.values, np.ndarray) else itertools.repeat(c.values) for c in columns
    )
    results: list[Any] = [None] * rows
    for row, operands in enumerate(zip(range(rows), *sources, strict=False)):
        if codes[row]:
            continue
        try:
            results[row] = function(*operands[1:])
        except Fault as fault:
            codes[row] = fault.kind
    return _pack(results, codes if codes.any() else np.zeros(rows, np.uint8))


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
                return _bounds(Column(node.value))
            case Name():
                return self.name(node.name)
            case Unary():
                return self.unary(node.op, self.column(node.operand))
            case Binary():
                return _binary(node.op, self.column(node.left), self.column(node.right))
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
                return _rounded_quotient(function, self.column(left), self.column(right))
        return _function(node.function, tuple(self.column(argument) for argument in node.arguments))

    def name(self, name: str) -> Column:
        if name not in self.named:
            definition = self.definitions.get(name)
            self.named[name] = _load(self.scope[name]) if definition is None else self.column(definition)
        return self.named[name]

    def unary(self, op: str, operand: Column) -> Column:
        if op == "not":
            truth = _truth(operand)
            return Column(_plain(np.logical_not(truth.values)), truth.faults)
        if op == "+":
            return _binary("+", _bounds(Column(0)), operand)
        return _binary("-", _bounds(Column(0)), operand)

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


def _load(source: Array | Value) -> Column:
    """A column of the scope: its rows as bool, int64, float64, str or object, checked for the limits."""
    if not (isinstance(source, np.ndarray) and source.ndim):
        try:
            return _bounds(Column(arithmetic.plain(_plain(source))))
        except Fault as fault:
            return Column(0, int(fault.kind))
    kind = source.dtype.kind
    if kind in "bU":
        return Column(source)
    if kind == "f":
        values = source.astype(np.float64, copy=False)
        return _with_faults(values, 0, ~np.isfinite(values), FaultKind.OVERFLOW)
    fits = kind in "iu" and (
        not source.size or (int(source.min()) >= -MAX_MAGNITUDE and int(source.max()) <= MAX_MAGNITUDE)
    )
    if fits:
        return _bounds(Column(source.astype(np.int64, copy=False)))
    return _row_by_row(arithmetic.plain, (Column(source),), 0)


def _apply(
    scalar: Callable[..., Value],
    vector: Callable[[Faults], Column | None],
    columns: tuple[Column, ...],
) -> Column:
    """`scalar` of plain values, else `vector` of arrays, or row by row where that returns None."""
    faults: Faults = 0
    for column in columns:
        faults = _first_fault(faults, column.faults)
    kinds = {column.kind for column in columns}
    if not any(isinstance(column.values, np.ndarray) for column in columns):
        try:
            return _bounds(Column(scalar(*(column.values for column in columns)), faults))
        except Fault as fault:
            return Column(0, _first_fault(faults, int(fault.kind)))
    result = None if "O" in kinds else vector(faults)
    return _row_by_row(scalar, columns, faults) if result is None else result


def _text_fault(faults: Faults) -> Column:
    return Column(0, _first_fault(faults, int(FaultKind.TYPE)))


def _integers(column: Column) -> Array | int:
    """An integer or bool column as int64."""
    if isinstance(column.values, np.ndarray):
        return column.values.astype(np.int64, copy=False)
    return int(column.values)


def _binary(op: str, left: Column, right: Column) -> Column:
    kinds = left.kind + right.kind

    def vector(faults: Faults) -> Column | None:
        if "U" in kinds:
            return _text_fault(faults)
        if "f" in kinds:
            return _float_binary(op, left, right, faults)
        if op in ("+", "-", "*"):
            return _exact_binary(op, left, right, faults)
        if op == "**":
            return _integer_power(left, right, faults)
        if op == "/" and max(left.magnitude, right.magnitude) > _EXACT_FLOAT:
            return None
        return _integer_division(op, left, right, faults)

    return _apply(lambda a, b: arithmetic.apply_binary(op, a, b), vector, (left, right))


_FLOAT_OPERATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "//": np.floor_divide,
    "%": np.remainder,
}


def _float_binary(op: str, left: Column, right: Column, faults: Faults) -> Column | None:
    if op == "**":
        return None
    a, b = (np.asarray(column.values, dtype=np.float64) for column in (left, right))
    if op in ("/", "//", "%"):
        zero = b == 0
        if zero.any():
            zeros = np.where(zero, np.uint8(FaultKind.ZERO_DIVISION), np.uint8(0))
            faults, b = _first_fault(faults, _plain_faults(zeros)), np.where(zero, 1.0, b)
    values = _FLOAT_OPERATIONS[op](a, b)
    return _with_faults(values, faults, ~np.isfinite(values), FaultKind.OVERFLOW)


def _plain_faults(codes: Array) -> Faults:
    return codes if codes.ndim else int(codes)


def _exact_binary(op: str, left: Column, right: Column, faults: Faults) -> Column | None:
    """`+`, `-` and `*` of integers where no row can leave 64 bits."""
    operation = arithmetic.BINARY[op]
    for a, b in ((left, right), (_bounds(left), _bounds(right))):
        corners = [operation(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        if max(map(abs, corners)) <= MAX_MAGNITUDE:
            values = operation(_integers(left), _integers(right))
            return Column(values, faults, min(corners), max(corners))
    return None


def _integer_power(left: Column, right: Column, faults: Faults) -> Column | None:
    left, right = _bounds(left), _bounds(right)
    largest = left.magnitude
    if right.low < 0 or (largest > 1 and right.high * largest.bit_length() > 63):
        return None
    bound = largest**right.high if largest > 1 else 1
    bound = max(bound, 1)
    values = np.power(np.asarray(_integers(left)), np.asarray(_integers(right)))
    return Column(values, faults, 0 if left.low >= 0 else -bound, bound)


def _divisor(right: Column, faults: Faults) -> tuple[Array | int, Faults]:
    """The divisors with 1 in place of 0, and the faults of the rows with a zero."""
    divisor = _integers(right)
    if right.low > 0 or right.high < 0 or not np.any(np.asarray(divisor) == 0):
        return divisor, faults
    zero = np.asarray(divisor) == 0
    codes = np.where(zero, np.uint8(FaultKind.ZERO_DIVISION), np.uint8(0))
    return np.where(zero, 1, divisor), _first_fault(faults, _plain_faults(codes))


def _integer_division(op: str, left: Column, right: Column, faults: Faults) -> Column:
    dividend = _integers(left)
    divisor, faults = _divisor(right, faults)
    if op == "/":
        return Column(np.true_divide(dividend, divisor), faults)
    if op == "//":
        bound = left.magnitude
        low = 0 if left.low >= 0 and right.low >= 0 else -bound
        return Column(np.floor_divide(dividend, divisor), faults, low, bound)
    # A divisor of 0 was replaced by 1, whose remainder 0 lies within these bounds.
    low, high = min(0, right.low), max(0, right.high)
    return Column(np.remainder(dividend, divisor), faults, low, high)


def _rounded_quotient(function: str, left: Column, right: Column) -> Column:
    def vector(faults: Faults) -> Column | None:
        if not {left.kind, right.kind} <= {"b", "i"}:
            return _function(function, (_binary("/", left, right),))
        dividend = _integers(left)
        divisor, faults = _divisor(right, faults)
        down = np.floor_divide(dividend, divisor)
        exact = np.remainder(dividend, divisor) == 0
        if function == "floor":
            values = down
        elif function == "ceil":
            values = np.where(exact, down, down + 1)
        else:
            values = np.where(exact | (down >= 0), down, down + 1)
        return Column(values, faults, -left.magnitude, left.magnitude)

    return _apply(lambda a, b: arithmetic.rounded_quotient(function, a, b), vector, (left, right))


def _function(function: str, arguments: tuple[Column, ...]) -> Column:
    kinds = {argument.kind for argument in arguments}

    def vector(faults: Faults) -> Column | None:
        if "U" in kinds:
            return _text_fault(faults)
        if function == "log2" or ("f" in kinds and len(arguments) > 1 and kinds != {"f"}):
            return None
        if "f" in kinds:
            return _float_function(function, arguments, faults)
        return _integer_function(function, arguments, faults)

    return _apply(lambda *values: arithmetic.apply_function(function, values), vector, arguments)


def _float_function(function: str, arguments: tuple[Column, ...], faults: Faults) -> Column | None:
    values = [argument.values for argument in arguments]
    if function in ("min", "max"):
        smallest = np.minimum if function == "min" else np.maximum
        return Column(_reduce(smallest, values), faults)
    if function == "abs":
        return Column(np.abs(np.asarray(values[0])), faults)
    if function == "ceil_div":
        return None
    rounded = {"ceil": np.ceil, "floor": np.floor, "int": np.trunc}[function](np.asarray(values[0]))
    large = np.abs(rounded) > MAX_MAGNITUDE
    column = _with_faults(rounded, faults, large, FaultKind.OVERFLOW)
    return _bounds(replace(column, values=np.asarray(column.values).astype(np.int64)))


def _integer_function(function: str, arguments: tuple[Column, ...], faults: Faults) -> Column | None:
    values = [_integers(argument) for argument in arguments]
    first = arguments[0]
    match function:
        case "min":
            low, high = min(a.low for a in arguments), min(a.high for a in arguments)
            return Column(_reduce(np.minimum, values), faults, low, high)
        case "max":
            low, high = max(a.low for a in arguments), max(a.high for a in arguments)
            return Column(_reduce(np.maximum, values), faults, low, high)
        case "abs":
            return Column(np.abs(np.asarray(values[0])), faults, 0, first.magnitude)
        case "ceil_div":
            return _rounded_quotient("ceil", *arguments)
    return Column(values[0], faults, first.low, first.high)


def _reduce(operation: Callable[[Any, Any], Any], values: list[Any]) -> Any:
    result = values[0]
    for value in values[1:]:
        result = operation(result, value)
    return result


def _truth(column: Column) -> Column:
    def vector(faults: Faults) -> Column | None:
        if column.kind == "U":
            return Column(False, _first_fault(faults, int(FaultKind.TYPE)))
        return Column(np.asarray(column.values) != 0, faults)

    return column if column.kind == "b" else _apply(arithmetic.truth, vector, (column,))


def _compare(op: str, left: Column, right: Column) -> Column:
    kinds = left.kind + right.kind

    def vector(faults: Faults) -> Column | None:
        if "U" in kinds and op not in ("==", "!="):
            return _text_fault(faults)
        if "U" in kinds and kinds != "UU":
            return Column(op == "!=", faults)
        integer = left if right.kind == "f" else right
        if kinds in ("if", "fi") and integer.magnitude > _EXACT_FLOAT:
            return None
        return Column(np.asarray(arithmetic.COMPARE[op](left.values, right.values)), faults)

    return _apply(lambda a, b: arithmetic.compare(op, a, b), vector, (left, right))


def _member(op: str, left: Column, members: tuple[Literal, ...]) -> Column:
    found = Column(False, left.faults)
    for member in members:
        found = _logic("or", (found, _compare("==", left, _bounds(Column(member.value)))))
    return found if op == "in" else Column(_plain(np.logical_not(found.values)), found.faults)


def _logic(op: str, operands: Iterable[Column]) -> Column:
    """`and` or `or` of bool columns; what would not have been evaluated has no faults."""
    combine = np.logical_and if op == "and" else np.logical_or
    columns = iter(operands)
    result = next(columns)
    for column in columns:
        skipped = np.logical_not(result.values) if op == "and" else np.asarray(result.values)
        faults = column.faults
        if not isinstance(faults, int) or faults:
            faults = _plain_faults(np.where(skipped, np.uint8(0), np.asarray(faults, np.uint8)))
        values = _plain(combine(result.values, column.values))
        result = Column(values, _first_fault(result.faults, faults))
    return result


def _choose(test: Column, then: Column, otherwise: Column) -> Column:
    """`then` in rows where `test` holds, `otherwise` elsewhere."""
    if not isinstance(test.values, np.ndarray):
        taken = then if test.values else otherwise
        return replace(taken, faults=_first_fault(test.faults, taken.faults))
    faults: Faults = 0
    if not (
        isinstance(then.faults, int)
        and isinstance(otherwise.faults, int)
        and then.faults == otherwise.faults == 0
    ):
        codes = np.where(
            test.values, np.asarray(then.faults, np.uint8), np.asarray(otherwise.faults, np.uint8)
        )
        faults = _plain_faults(codes)
    faults = _first_fault(test.faults, faults)
    kinds = {then.kind, otherwise.kind}
    if len(kinds) == 1 or kinds == {"b", "i"}:
        values = np.where(test.values, then.values, otherwise.values)
        return Column(values, faults, min(then.low, otherwise.low), max(then.high, otherwise.high))
    mixed = Column(test.values, faults), then, otherwise
    return _row_by_row(lambda holds, a, b: a if holds else b, mixed, faults)
