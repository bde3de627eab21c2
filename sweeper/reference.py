"""Right results: a contraction in float64 or exact integers, with a bound for every element."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.arguments import ResolvedArray
from sweeper.contraction import Contraction, evaluate, rectangles, take
from sweeper.dtypes import DTYPES, DType
from sweeper.errors import ConfigError, KernelError
from sweeper.rounding import contraction_bound, require_in_range

__all__ = ["ReferenceValues", "contract", "contract_where", "from_function"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class ReferenceValues:
    """What an output should hold: float64 `values` (int64 where exact), and the `bound` on the error.

    Shaped like the output; or, where only a part was computed, one-dimensional, `where` holding the
    elements' flat indices in ascending order. An exact reference has a bound of zero.
    """

    values: Array
    bound: npt.NDArray[np.float64]
    where: npt.NDArray[np.intp] | None = None


def from_function(
    output: ResolvedArray,
    values: Array,
    magnitudes: Array | None,
    *,
    terms: int,
    kernel: DType,
    tolerance: float,
    sides: int = 1,
) -> ReferenceValues:
    """The reference for `output` where `values` come from code: see `rounding.function_bound`.

    Raises KernelError where an integer output has a fraction, ConfigError where the type cannot hold it.
    """
    require_in_range(output.name, values, output.dtype)
    if output.dtype.is_integer:
        if not np.array_equal(values, np.rint(values)):
            raise KernelError(f"reference: {output} is of integers, but a fraction is expected in it")
        return _exact(values.astype(np.int64))
    wide = values.astype(np.float64)
    bound = function_bound(
        wide, magnitudes, terms=terms, kernel=kernel, output=output.dtype, tolerance=tolerance, sides=sides
    )
    return ReferenceValues(wide, bound)


def _exact(values: npt.NDArray[np.int64]) -> ReferenceValues:
    """A reference of integers, to be met exactly; its bound takes no memory."""
    return ReferenceValues(values, np.broadcast_to(np.float64(0.0), values.shape))


def contract(
    contraction: Contraction,
    arrays: Sequence[Array],
    output: ResolvedArray,
    *,
    kernel: DType,
    tolerance: float,
    select: Mapping[str, npt.NDArray[np.intp]] | None = None,
) -> ReferenceValues:
    """The contraction of `arrays` as the kernel reads them; with `select` only that part of it.

    Costs two products: the values in float64, and the magnitudes of the bound in float32 where that
    is enough (half the time). Raises ConfigError where the output type cannot hold a value.
    """
    shape = output.shape if select is None else None
    arrays = take(contraction, arrays, select or {})
    peaks = [_peak(a) for a in arrays]
    if output.dtype.is_integer:
        whole = _shaped(_integer_product(contraction, arrays, peaks, output.name), shape)
        require_in_range(output.name, whole, output.dtype)
        return _exact(whole)
    values = _shaped(evaluate(contraction, [a.astype(np.float64) for a in arrays]), shape)
    require_in_range(output.name, values, output.dtype)
    peak = math.prod(float(p) for p in peaks)
    bound = contraction_bound(
        values,
        _shaped(_magnitudes(contraction, arrays, kernel, peak), shape),
        terms=contraction.terms,
        operands=len(arrays),
        peak=peak,
        kernel=kernel,
        output=output.dtype,
        tolerance=tolerance,
    )
    return ReferenceValues(values, bound)


def contract_where(
    contraction: Contraction,
    arrays: Sequence[Array],
    output: ResolvedArray,
    mask: npt.NDArray[np.bool_],
    *,
    kernel: DType,
    tolerance: float,
) -> ReferenceValues:
    """`contract` for the elements in `mask` (shaped like the output), at a cost close to theirs.

    A matrix output is covered by rectangles of rows × columns; with more axes each matrix of the last
    two is. Everything is computed where the mask is full.
    """
    if mask.all():
        return contract(contraction, arrays, output, kernel=kernel, tolerance=tolerance)
    grid = mask.reshape(mask.shape if mask.ndim > 1 else (-1, 1))
    parts: list[ReferenceValues] = []
    for lead in np.ndindex(grid.shape[:-2]):
        for rows, columns in rectangles(grid[lead]):
            picks = [*(np.array([i]) for i in lead), rows, columns]
            select = dict(zip(contraction.output, picks, strict=False))
            part = contract(contraction, arrays, output, kernel=kernel, tolerance=tolerance, select=select)
            flat = np.ravel_multi_index(np.ix_(*picks), grid.shape).reshape(-1)
            kept = mask.reshape(-1)[flat]
            bound = part.bound.reshape(-1)[kept]
            parts.append(ReferenceValues(part.values.reshape(-1)[kept], bound, flat[kept]))
    return _joined(parts, np.dtype(np.int64 if output.dtype.is_integer else np.float64))


def _joined(parts: Sequence[ReferenceValues], kind: np.dtype[Any]) -> ReferenceValues:
    """The parts as one, in ascending order of flat index."""
    if not parts:
        nothing = np.empty(0, np.intp)
        return ReferenceValues(np.empty(0, kind), np.empty(0, np.float64), nothing)
    where = np.concatenate([p.where for p in parts if p.where is not None])
    order = np.argsort(where)
    values = np.concatenate([p.values for p in parts])
    bound = np.concatenate([p.bound for p in parts])
    return ReferenceValues(values[order], bound[order], where[order])


def _shaped(data: Array, shape: tuple[int, ...] | None) -> Array:
    """One element may be declared with any number of axes: the contraction has none."""
    return data if shape is None else data.reshape(shape)


def _peak(data: Array) -> int | float:
    """The largest magnitude. Not by `abs`: the lowest int8 has no positive counterpart."""
    low, high = data.min(), data.max()
    return max(-int(low), int(high)) if data.dtype.kind in "iu" else max(-float(low), float(high))


def _integer_product(
    contraction: Contraction, arrays: Sequence[Array], peaks: Sequence[int | float], name: str
) -> npt.NDArray[np.int64]:
    """Exact. Through float64 where no partial sum can exceed 2^53: every step is then exact in it."""
    reach = contraction.terms * math.prod(max(1, int(p)) for p in peaks)
    if reach < 2**53:
        return evaluate(contraction, [a.astype(np.float64) for a in arrays]).astype(np.int64)
    if reach < 2**63:
        return evaluate(contraction, [a.astype(np.int64) for a in arrays])
    raise ConfigError(
        f"input range: sums of {name} may reach {reach:.3g}, beyond the 64-bit integers of its reference",
        hint="use inputs of smaller values",
    )


def _magnitudes(contraction: Contraction, arrays: Sequence[Array], kernel: DType, peak: float) -> Array:
    """|A|·|B|, an upper bound on it where computed in float32.

    A float32 sum of K terms of one sign falls short by a factor of at most 1 − K·2^-24; products below
    its range are products below the accumulator's, which the bound counts as underflow.
    """
    terms = contraction.terms
    narrow = DTYPES[kernel.accumulator].significand_bits <= 24 and terms < 2**20 and terms * peak < 1e37
    result = evaluate(contraction, [np.abs(a.astype(np.float32 if narrow else np.float64)) for a in arrays])
    if narrow:
        result *= result.dtype.type(1 + terms * 2.0**-23)
    return result
