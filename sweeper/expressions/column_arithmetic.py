"""Arithmetic and functions of whole columns, as exact as on single values.

A vector operation is taken only where it provably agrees with exact arithmetic: the bounds of the
integers involved are carried along, and what might leave 64 bits (or 53, where NumPy converts to
float64) returns None and is evaluated row by row instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce
from typing import Any, Final

import numpy as np

from sweeper.expressions import arithmetic
from sweeper.expressions.arithmetic import FaultKind
from sweeper.expressions.column import (
    EXACT_FLOAT,
    Array,
    Column,
    Faults,
    apply,
    first_fault,
    integers,
    plain_faults,
    text_fault,
    with_bounds,
    with_faults,
)
from sweeper.expressions.syntax import MAX_MAGNITUDE

__all__ = ["binary", "call", "rounded_quotient"]


def binary(op: str, left: Column, right: Column) -> Column:
    """`left op right` on every row."""
    kinds = left.kind + right.kind

    def vector(faults: Faults) -> Column | None:
        if "U" in kinds:
            return text_fault(faults)
        if "f" in kinds:
            return _float_binary(op, left, right, faults)
        if op in ("+", "-", "*"):
            return _exact_binary(op, left, right, faults)
        if op == "**":
            return _integer_power(left, right, faults)
        if op == "/" and max(left.magnitude, right.magnitude) > EXACT_FLOAT:
            return None
        return _integer_division(op, left, right, faults)

    return apply(partial(arithmetic.apply_binary, op), vector, (left, right))


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
        b, faults = _nonzero(b, faults)
    values = _FLOAT_OPERATIONS[op](a, b)
    return with_faults(values, faults, ~np.isfinite(values), FaultKind.OVERFLOW)


def _exact_binary(op: str, left: Column, right: Column, faults: Faults) -> Column | None:
    """`+`, `-` and `*` of integers where no row can leave 64 bits."""
    operation = arithmetic.BINARY[op]
    for a, b in ((left, right), (with_bounds(left), with_bounds(right))):
        corners = [operation(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        if max(map(abs, corners)) <= MAX_MAGNITUDE:
            values = operation(integers(left), integers(right))
            return Column(values, faults, min(corners), max(corners))
    return None


def _integer_power(left: Column, right: Column, faults: Faults) -> Column | None:
    left, right = with_bounds(left), with_bounds(right)
    largest = left.magnitude
    if right.low < 0 or (largest > 1 and right.high * largest.bit_length() > 63):
        return None
    bound = max(1, largest**right.high) if largest > 1 else 1
    values = np.power(np.asarray(integers(left)), np.asarray(integers(right)))
    return Column(values, faults, 0 if left.low >= 0 else -bound, bound)


def _divisor(right: Column, faults: Faults) -> tuple[Array, Faults]:
    divisor = np.asarray(integers(right))
    return (divisor, faults) if right.low > 0 or right.high < 0 else _nonzero(divisor, faults)


def _nonzero(divisor: Array, faults: Faults) -> tuple[Array, Faults]:
    """`divisor` with 1 in place of 0, and the faults with those of the rows that had a zero."""
    zero = divisor == 0
    if not np.any(zero):
        return divisor, faults
    codes = np.where(zero, np.uint8(FaultKind.ZERO_DIVISION), np.uint8(0))
    return np.where(zero, 1, divisor), first_fault(faults, plain_faults(codes))


def _integer_division(op: str, left: Column, right: Column, faults: Faults) -> Column:
    dividend = integers(left)
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


def rounded_quotient(function: str, left: Column, right: Column) -> Column:
    """`ceil`, `floor` or `int` of `left / right` on every row, exact on integers."""

    def vector(faults: Faults) -> Column | None:
        if not {left.kind, right.kind} <= {"b", "i"}:
            return call(function, (binary("/", left, right),))
        dividend = integers(left)
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

    return apply(partial(arithmetic.rounded_quotient, function), vector, (left, right))


def call(function: str, arguments: tuple[Column, ...]) -> Column:
    """`function(*arguments)` on every row."""
    kinds = {argument.kind for argument in arguments}

    def vector(faults: Faults) -> Column | None:
        if "U" in kinds:
            return text_fault(faults)
        if function == "log2" or ("f" in kinds and len(arguments) > 1 and kinds != {"f"}):
            return None
        if "f" in kinds:
            return _float_function(function, arguments, faults)
        return _integer_function(function, arguments, faults)

    return apply(lambda *values: arithmetic.apply_function(function, values), vector, arguments)


def _float_function(function: str, arguments: tuple[Column, ...], faults: Faults) -> Column | None:
    values = [argument.values for argument in arguments]
    if function in ("min", "max"):
        smallest = np.minimum if function == "min" else np.maximum
        return Column(reduce(smallest, values), faults)
    if function == "abs":
        return Column(np.abs(np.asarray(values[0])), faults)
    if function == "ceil_div":
        return None
    rounded = {"ceil": np.ceil, "floor": np.floor, "int": np.trunc}[function](np.asarray(values[0]))
    large = np.abs(rounded) >= 2.0**63
    column = with_faults(rounded, faults, large, FaultKind.OVERFLOW)
    return with_bounds(replace(column, values=np.asarray(column.values).astype(np.int64)))


def _integer_function(function: str, arguments: tuple[Column, ...], faults: Faults) -> Column | None:
    values = [integers(argument) for argument in arguments]
    first = arguments[0]
    lows, highs = [a.low for a in arguments], [a.high for a in arguments]
    match function:
        case "min":
            return Column(reduce(np.minimum, values), faults, min(lows), min(highs))
        case "max":
            return Column(reduce(np.maximum, values), faults, max(lows), max(highs))
        case "abs":
            return Column(np.abs(np.asarray(values[0])), faults, 0, first.magnitude)
        case "ceil_div":
            return rounded_quotient("ceil", *arguments)
    return Column(values[0], faults, first.low, first.high)
