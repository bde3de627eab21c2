"""What each operation of an expression means on single values: exact integers, bounded results.

An operation that has no value at its operands raises `Fault`; `expressions` turns that into a message
and `columns` into a masked row. Strings only compare for equality; bools count as 0 and 1.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final

from sweeper.expressions.syntax import (
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
)

__all__ = [
    "BINARY",
    "COMPARE",
    "Fault",
    "FaultKind",
    "apply_binary",
    "apply_function",
    "apply_unary",
    "compare",
    "evaluate",
    "first_failing",
    "lookup",
    "plain",
    "rounded_quotient",
    "truth",
]


class FaultKind(IntEnum):
    """Why an operation has no value; also the code of a masked row of a column."""

    NONE = 0
    ZERO_DIVISION = 1
    OVERFLOW = 2
    DOMAIN = 3
    TYPE = 4


class Fault(Exception):
    """An operation without a value; `node` is where, filled in by `evaluate`."""

    def __init__(self, kind: FaultKind, message: str, node: Node | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.node = node


def _bounded(value: Any) -> int | float:
    """`value` if it is an int or float within the limits."""
    if isinstance(value, int):
        if -MAX_MAGNITUDE <= value <= MAX_MAGNITUDE:
            return int(value)
        raise Fault(FaultKind.OVERFLOW, "the result does not fit 64 bits")
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise Fault(FaultKind.OVERFLOW, "the result is too large")
    raise Fault(FaultKind.DOMAIN, "the result is not a real number")


def _numbers(what: str, *values: Value) -> None:
    for value in values:
        if isinstance(value, str):
            raise Fault(FaultKind.TYPE, f"text {value!r} {what} (text only takes ==, != and `in`)")


def truth(value: Value) -> bool:
    """Whether `value` counts as true; a string does not count."""
    _numbers("as a truth value", value)
    return bool(value)


def _power(base: float, exponent: float) -> int | float:
    if isinstance(base, int) and isinstance(exponent, int) and exponent >= 0:
        # |base| ** exponent has at least exponent * (bits - 1) + 1 bits: refused before it is computed.
        if exponent * (abs(base).bit_length() - 1) >= 63:
            raise Fault(FaultKind.OVERFLOW, "the power does not fit 64 bits")
        exponent = min(exponent, 2 + exponent % 2) if abs(base) <= 1 else exponent
    result: Any = base**exponent
    return _bounded(result)


BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": _power,
}


def apply_binary(op: str, left: Value, right: Value) -> int | float:
    """`left op right`; raises Fault for a zero divisor, an overflow or a string."""
    _numbers(f"under `{op}`", left, right)
    try:
        return _bounded(BINARY[op](left, right))
    except ZeroDivisionError:
        raise Fault(FaultKind.ZERO_DIVISION, "division by zero") from None
    except OverflowError:
        raise Fault(FaultKind.OVERFLOW, "the result is too large") from None


def apply_unary(op: str, operand: Value) -> Value:
    """`+x`, `-x` or `not x`."""
    if op == "not":
        return not truth(operand)
    _numbers(f"under `{op}`", operand)
    return _bounded(-operand if op == "-" else +operand)  # type: ignore[operator]


def _log2(value: float) -> float:
    if value <= 0:
        raise Fault(FaultKind.DOMAIN, f"log2 of {value}, which is not positive")
    return math.log2(value)


def _ceil_div(left: float, right: float) -> int:
    if not (isinstance(left, int) and isinstance(right, int)):
        raise Fault(FaultKind.TYPE, "ceil_div takes integers; use ceil(a / b)")
    return -(-left // right)


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "ceil": math.ceil,
    "floor": math.floor,
    "ceil_div": _ceil_div,
    "log2": _log2,
    "int": int,
}


def apply_function(function: str, arguments: tuple[Value, ...]) -> int | float:
    """`function(*arguments)`; raises Fault where it has no value."""
    _numbers(f"in {function}()", *arguments)
    try:
        return _bounded(_FUNCTIONS[function](*arguments))
    except ZeroDivisionError:
        raise Fault(FaultKind.ZERO_DIVISION, "division by zero") from None


def rounded_quotient(function: str, left: Value, right: Value) -> int | float:
    """`ceil`, `floor` or `int` of `left / right`, exact for integers of any size."""
    if not (isinstance(left, int) and isinstance(right, int)):
        return apply_function(function, (apply_binary("/", left, right),))
    if right == 0:
        raise Fault(FaultKind.ZERO_DIVISION, "division by zero")
    up = function == "ceil" or (function == "int" and (left < 0) != (right < 0))
    return _bounded(-(-left // right) if up else left // right)


COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def compare(op: str, left: Value, right: Value) -> bool:
    """`left op right`; a string and a number are unequal, and have no order."""
    if op not in ("==", "!="):
        _numbers(f"under `{op}`", left, right)
    return COMPARE[op](left, right)


def evaluate(node: Node, scope: Mapping[str, Value]) -> Value:
    """The value of `node`; raises Fault with the innermost node that has no value."""
    try:
        return _value(node, scope)
    except Fault as fault:
        fault.node = fault.node or node
        raise


def _value(node: Node, scope: Mapping[str, Value]) -> Value:
    match node:
        case Literal():
            return node.value
        case Name():
            return lookup(scope, node.name)
        case Unary():
            return apply_unary(node.op, evaluate(node.operand, scope))
        case Binary():
            return apply_binary(node.op, evaluate(node.left, scope), evaluate(node.right, scope))
        case Comparison():
            return first_failing(node, scope) is None
        case Logic():
            decide = all if node.op == "and" else any
            return decide(truth(evaluate(operand, scope)) for operand in node.operands)
        case Conditional():
            return evaluate(node.then if truth(evaluate(node.test, scope)) else node.otherwise, scope)
        case Call():
            return _call(node, scope)


def _call(node: Call, scope: Mapping[str, Value]) -> float:
    match node:
        case Call("ceil" | "floor" | "int" as function, (Binary("/", left, right),)):
            return rounded_quotient(function, evaluate(left, scope), evaluate(right, scope))
    return apply_function(node.function, tuple(evaluate(argument, scope) for argument in node.arguments))


def lookup(scope: Mapping[str, Value], name: str) -> Value:
    """The value of a variable, checked like any result."""
    return plain(scope[name])


def plain(value: Any) -> Value:
    """A value from outside (a NumPy scalar, too) as a plain Python value within the limits."""
    value = value.item() if hasattr(value, "item") else value
    return value if isinstance(value, bool | str) else _bounded(value)


def first_failing(node: Comparison, scope: Mapping[str, Value]) -> tuple[int, Value, Value | None] | None:
    """Index and operands of the first link that fails (no right operand for `in`), or None: all hold."""
    left = evaluate(node.first, scope)
    for index, link in enumerate(node.links):
        if isinstance(link.right, tuple):
            inside = any(left == member.value for member in link.right)
            if inside != (link.op == "in"):
                return index, left, None
        else:
            right = evaluate(link.right, scope)
            if not compare(link.op, left, right):
                return index, left, right
            left = right
    return None
