"""A column of values with the rows that have none, and how columns are made and combined.

The dtypes are bool, int64, float64, str and object (rows of different types). What an operation has no
value for is marked by a fault code and holds a filler, so that the vector operations run over all rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sweeper.expressions import arithmetic
from sweeper.expressions.arithmetic import Fault, FaultKind
from sweeper.expressions.syntax import MAX_MAGNITUDE, Value

__all__ = [
    "EXACT_FLOAT",
    "Array",
    "Column",
    "Faults",
    "apply",
    "first_fault",
    "integers",
    "load",
    "plain_faults",
    "plain_values",
    "row_by_row",
    "text_fault",
    "with_bounds",
    "with_faults",
]

EXACT_FLOAT: Final = 2**53
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


def first_fault(first: Faults, second: Faults) -> Faults:
    """The earlier fault of each row."""
    if isinstance(first, int) or isinstance(second, int):
        if isinstance(first, int):
            return first or second
        if second == 0:
            return first
    return np.where(first, first, second)


def plain_values(values: Any) -> Array | Value:
    """A zero-dimensional result as a plain value."""
    if isinstance(values, np.ndarray) and values.ndim:
        return values
    plain: Value = values.item() if hasattr(values, "item") else values
    return plain


def plain_faults(codes: Array) -> Faults:
    """Zero-dimensional fault codes as one for all rows."""
    return codes if codes.ndim else int(codes)


def with_faults(values: Any, faults: Faults, mask: Any, kind: FaultKind) -> Column:
    """A float column whose rows under `mask` have no value, if they had one before."""
    if np.any(mask):
        faults = first_fault(faults, np.where(mask, np.uint8(kind), np.uint8(0)))
        values = np.where(mask, 0.0, values)
    return Column(plain_values(values), faults)


def _pack(results: list[Any], faults: Faults) -> Column:
    """A column of Python values; None marks a row without one."""
    types = {type(value) for value in results} - {type(None)}
    if types == {str} and not any("\0" in value for value in results if value is not None):
        return Column(np.array([value or "" for value in results]), faults)
    if types in ({bool}, {float}, {int}, set()):
        dtype = next(iter(types), int)
        values = np.array([dtype() if value is None else value for value in results], dtype=dtype)
        return with_bounds(Column(values, faults))
    values = np.empty(len(results), dtype=object)
    values[:] = [0 if value is None else value for value in results]
    return Column(values, faults)


def with_bounds(column: Column) -> Column:
    """`column` with the tightest bounds of its integers."""
    values = column.values
    if isinstance(values, np.ndarray):
        if values.dtype.kind == "i":
            low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
            return replace(column, low=low, high=high)
    elif isinstance(values, int):
        return replace(column, low=int(values), high=int(values))
    return column


def row_by_row(function: Callable[..., Value], columns: tuple[Column, ...], faults: Faults) -> Column:
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
    return _pack(results, codes if codes.any() else 0)


def integers(column: Column) -> Array | int:
    """An integer or bool column as int64."""
    if isinstance(column.values, np.ndarray):
        return column.values.astype(np.int64, copy=False)
    return int(column.values)


def text_fault(faults: Faults) -> Column:
    """No value in any row, for want of a number."""
    return Column(0, first_fault(faults, int(FaultKind.TYPE)))


def load(source: Array | Value) -> Column:
    """A column of the scope: its rows as bool, int64, float64, str or object, checked for the limits."""
    if not (isinstance(source, np.ndarray) and source.ndim):
        try:
            return with_bounds(Column(arithmetic.plain(plain_values(source))))
        except Fault as fault:
            return Column(0, int(fault.kind))
    kind = source.dtype.kind
    if kind in "bU":
        return Column(source)
    if kind == "f":
        values = source.astype(np.float64, copy=False)
        return with_faults(values, 0, ~np.isfinite(values), FaultKind.OVERFLOW)
    fits = kind in "iu" and (
        not source.size or (int(source.min()) >= -MAX_MAGNITUDE and int(source.max()) <= MAX_MAGNITUDE)
    )
    if fits:
        return with_bounds(Column(source.astype(np.int64, copy=False)))
    return row_by_row(arithmetic.plain, (Column(source),), 0)


def apply(
    scalar: Callable[..., Value],
    vector: Callable[[Faults], Column | None],
    columns: tuple[Column, ...],
) -> Column:
    """`scalar` of plain values, else `vector` of arrays, or row by row where that returns None."""
    faults: Faults = 0
    for column in columns:
        faults = first_fault(faults, column.faults)
    kinds = {column.kind for column in columns}
    if not any(isinstance(column.values, np.ndarray) for column in columns):
        try:
            return with_bounds(Column(scalar(*(column.values for column in columns)), faults))
        except Fault as fault:
            return Column(0, first_fault(faults, int(fault.kind)))
    result = None if "O" in kinds else vector(faults)
    return row_by_row(scalar, columns, faults) if result is None else result
