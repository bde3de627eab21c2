"""Whether a condition may still hold when some of its variables are only known to lie in a range.

Interval arithmetic on float64 columns. The answer errs on one side only: what is said not to hold does
not hold at any values in the ranges, so that partial choices can be dropped before they are complete.
Conditions have intervals, too: [0, 0] is false, [1, 1] true, [0, 1] undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

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
)

__all__ = ["Interval", "interval_of", "may_hold"]

_EXACT_FLOAT: Final = 2.0**53
_ROUNDING: Final = 2.0**-40
"""Relative slack for what float64 rounds: integers beyond 2^53, powers and logarithms. Other operations
round as the evaluation itself does, and rounding keeps the order of the ends."""

Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds of each row's value; `whole` where every value is an integer."""

    low: Floats
    high: Floats
    whole: bool = False


_ANYTHING: Final = Interval(np.array(-np.inf), np.array(np.inf))


def interval_of(values: npt.NDArray[Any] | Sequence[Value], *, each: bool = False) -> Interval:
    """The range of `values`, or with `each` the exact value of every row. Text may be anything."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf" or not array.size:
        return _ANYTHING
    numbers = array.astype(np.float64)
    low, high = (numbers, numbers) if each else (numbers.min(), numbers.max())
    return _sound(low, high, whole=array.dtype.kind != "f")


def may_hold(
    node: Node, intervals: Mapping[str, Interval], definitions: Mapping[str, Node]
) -> npt.NDArray[np.bool_]:
    """False for the rows where `node` is false (or has no value) throughout the intervals."""
    with np.errstate(all="ignore"):
        truth = _truth(_Bounds(intervals, definitions).of(node))
    return np.asarray(truth.high > 0)


class _Bounds:
    def __init__(self, intervals: Mapping[str, Interval], definitions: Mapping[str, Node]) -> None:
        self.named = dict(intervals)
        self.definitions = definitions

    def of(self, node: Node) -> Interval:
        match node:
            case Literal():
                return interval_of([node.value])
            case Name():
                return self.name(node.name)
            case Unary():
                return _unary(node.op, self.of(node.operand))
            case Binary():
                return _binary(node.op, self.of(node.left), self.of(node.right))
            case Comparison():
                return self.comparison(node)
            case Logic():
                return _logic(node.op, [_truth(self.of(operand)) for operand in node.operands])
            case Conditional():
                return _choose(_truth(self.of(node.test)), self.of(node.then), self.of(node.otherwise))
            case Call():
                return _call(node.function, [self.of(argument) for argument in node.arguments])

    def name(self, name: str) -> Interval:
        if name not in self.named:
            self.named[name] = self.of(self.definitions[name])
        return self.named[name]

    def comparison(self, node: Comparison) -> Interval:
        left, links = self.of(node.first), []
        for link in node.links:
            if isinstance(link.right, tuple):
                equal = [_compare("==", left, self.of(member)) for member in link.right]
                inside = _logic("or", equal) if equal else interval_of([False])
                links.append(inside if link.op == "in" else _unary("not", inside))
            else:
                right = self.of(link.right)
                links.append(_compare(link.op, left, right))
                left = right
        return _logic("and", links)


def _sound(low: Any, high: Any, *, whole: bool = False, rounded: bool = False) -> Interval:
    """Bounds widened by what float64 may have rounded; undefined ends (∞ − ∞, 0 · ∞) are unbounded."""
    widen_low = rounded | (np.abs(low) >= _EXACT_FLOAT)
    widen_high = rounded | (np.abs(high) >= _EXACT_FLOAT)
    low = np.where(widen_low, low - np.abs(low) * _ROUNDING, low)
    high = np.where(widen_high, high + np.abs(high) * _ROUNDING, high)
    return Interval(np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high), whole)


def _condition(certain: Any, possible: Any) -> Interval:
    return Interval(np.asarray(certain, dtype=np.float64), np.asarray(possible, dtype=np.float64), True)


def _truth(value: Interval) -> Interval:
    return _condition((value.low > 0) | (value.high < 0), (value.low != 0) | (value.high != 0))


def _unary(op: str, operand: Interval) -> Interval:
    if op == "not":
        truth = _truth(operand)
        return Interval(1 - truth.high, 1 - truth.low, True)
    return operand if op == "+" else Interval(-operand.high, -operand.low, operand.whole)


def _corners(operation: Callable[[Any, Any], Any], left: Interval, right: Interval) -> list[Any]:
    return [operation(a, b) for a in (left.low, left.high) for b in (right.low, right.high)]


def _binary(op: str, left: Interval, right: Interval) -> Interval:
    whole = left.whole and right.whole
    match op:
        case "+":
            return _sound(left.low + right.low, left.high + right.high, whole=whole)
        case "-":
            return _sound(left.low - right.high, left.high - right.low, whole=whole)
        case "*":
            corners = _corners(np.multiply, left, right)
            return _sound(reduce(np.minimum, corners), reduce(np.maximum, corners), whole=whole)
        case "/":
            return _quotient(left, right)
        case "//":
            quotient = _quotient(left, right)
            # A fraction's quotient may be rounded up to the next integer before it is floored.
            return _sound(np.floor(quotient.low) - (not whole), np.floor(quotient.high), whole=whole)
        case "%":
            return _remainder(left, right, whole=whole)
    return _power(left, right, whole=whole)


def _quotient(left: Interval, right: Interval) -> Interval:
    corners = _corners(np.true_divide, left, right)
    spans_zero = (right.low <= 0) & (right.high >= 0)
    return _sound(
        np.where(spans_zero, -np.inf, reduce(np.minimum, corners)),
        np.where(spans_zero, np.inf, reduce(np.maximum, corners)),
    )


def _remainder(left: Interval, right: Interval, *, whole: bool) -> Interval:
    positive = right.low > 0
    below_divisor = positive & (left.low >= 0) & (left.high < right.low)
    low = np.where(positive, np.where(below_divisor, left.low, 0.0), -np.inf)
    high = np.where(positive, np.where(below_divisor, left.high, right.high), np.inf)
    return Interval(low, high, whole)


def _power(base: Interval, exponent: Interval, *, whole: bool) -> Interval:
    """Bounds where the power grows with both; elsewhere none."""
    grows = (base.low >= 1) & (exponent.low >= 0)
    low = np.where(grows, np.power(base.low, exponent.low), -np.inf)
    high = np.where(grows, np.power(base.high, exponent.high), np.inf)
    return _sound(low, high, whole=whole, rounded=True)


def _compare(op: str, left: Interval, right: Interval) -> Interval:
    match op:
        case "<":
            return _condition(left.high < right.low, left.low < right.high)
        case "<=":
            return _condition(left.high <= right.low, left.low <= right.high)
        case ">":
            return _compare("<", right, left)
        case ">=":
            return _compare("<=", right, left)
    apart = (left.high < right.low) | (right.high < left.low)
    # Equal ends may still be different integers beyond 2^53, so that equality is never certain.
    return _condition(False, ~apart) if op == "==" else _condition(apart, True)


def _logic(op: str, operands: Sequence[Interval]) -> Interval:
    combine = np.minimum if op == "and" else np.maximum
    lows, highs = [o.low for o in operands], [o.high for o in operands]
    return Interval(reduce(combine, lows), reduce(combine, highs), True)


def _choose(test: Interval, then: Interval, otherwise: Interval) -> Interval:
    low = np.where(
        test.low > 0, then.low, np.where(test.high > 0, np.minimum(then.low, otherwise.low), otherwise.low)
    )
    high = np.where(
        test.low > 0,
        then.high,
        np.where(test.high > 0, np.maximum(then.high, otherwise.high), otherwise.high),
    )
    return Interval(low, high, then.whole and otherwise.whole)


_ROUNDED: Final[dict[str, Callable[[Any], Any]]] = {"ceil": np.ceil, "floor": np.floor, "int": np.trunc}


def _call(function: str, arguments: Sequence[Interval]) -> Interval:
    first = arguments[0]
    if function in ("min", "max"):
        combine = np.minimum if function == "min" else np.maximum
        lows, highs = [a.low for a in arguments], [a.high for a in arguments]
        return Interval(reduce(combine, lows), reduce(combine, highs), all(a.whole for a in arguments))
    if function in _ROUNDED:
        rounded = _ROUNDED[function]
        return Interval(rounded(first.low), rounded(first.high), True)
    if function == "ceil_div":
        quotient = _quotient(*arguments)
        return Interval(np.ceil(quotient.low), np.ceil(quotient.high), True)
    if function == "abs":
        ends = np.abs(first.low), np.abs(first.high)
        spans_zero = (first.low <= 0) & (first.high >= 0)
        return Interval(np.where(spans_zero, 0.0, np.minimum(*ends)), np.maximum(*ends), first.whole)
    low = np.where(first.low > 0, np.log2(first.low), -np.inf)
    return _sound(low, np.log2(first.high), rounded=True)
