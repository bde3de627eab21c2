"""Right results: a contraction in float64 or exact integers, with a bound for every element."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.dtypes import DTYPES, DType
from sweeper.errors import ConfigError, KernelError
from sweeper.model import Direction, KernelSpec
from sweeper.problem.arguments import ResolvedArray, ResolvedScalar
from sweeper.problem.contraction import Contraction, evaluate, parse_contraction, rectangles, take
from sweeper.problem.rounding import contraction_bound, function_bound, require_in_range

__all__ = ["ReferenceValues", "contract", "contraction_of", "from_function"]

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


def contraction_of(spec: KernelSpec, args: Sequence[ResolvedArray | ResolvedScalar]) -> Contraction | None:
    """The contraction that is the kernel's reference, `args` its arguments; None for another kind.

    Raises KernelError where it does not fit the arrays' directions, classes or shapes.
    """
    if spec.reference.kind != "contraction":
        return None
    arrays = [a for a in args if isinstance(a, ResolvedArray)]
    inputs = [a for a in arrays if a.direction is Direction.IN]
    outputs = [a for a in arrays if a.is_output]
    place = f"kernel {spec.name}: contraction {spec.reference.text!r}"
    if len(outputs) != 1 or outputs[0].direction is not Direction.OUT:
        found = ", ".join(f"{a.name} ({a.direction})" for a in outputs)
        raise KernelError(
            f"{place} needs exactly one array of direction out, but there is {found}",
            hint="describe what is accumulated or written elsewhere by `reference: {python: …}`",
        )
    floating = [a.name for a in inputs if not a.dtype.is_integer]
    if outputs[0].dtype.is_integer and floating:
        raise KernelError(f"{place}: {', '.join(floating)} of floating point, but {outputs[0]} of integers")
    return parse_contraction(
        spec.reference.text,
        [(a.name, a.shape) for a in inputs],
        (outputs[0].name, outputs[0].shape),
        where=f"kernel {spec.name}",
    )


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
    if not output.dtype.is_integer:
        values = values.astype(np.float64)
    require_in_range(output.name, values, output.dtype)
    if output.dtype.is_integer:
        if not np.array_equal(values, np.rint(values)):
            raise KernelError(f"reference: {output} is of integers, but a fraction is expected in it")
        return _exact(values.astype(np.int64))
    bound = function_bound(
        values, magnitudes, terms=terms, kernel=kernel, output=output.dtype, tolerance=tolerance, sides=sides
    )
    return ReferenceValues(values, bound)


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
    mask: npt.NDArray[np.bool_] | None = None,
) -> ReferenceValues:
    """The contraction of `arrays` as the kernel reads them, with a `mask` only for its elements.

    Costs two products: the values in float64, and the magnitudes of the bound in float32 where that
    is enough (half the time). The elements of a mask are covered by rectangles of rows × columns, one
    matrix of the last two axes at a time. Raises ConfigError where the output type cannot hold a value,
    KernelError for a mask of another shape.
    """
    if mask is not None and mask.shape != output.shape:
        raise KernelError(f"mask of {output}: its shape is {mask.shape}")
    if mask is None or mask.all():
        whole = _contract(contraction, arrays, output, kernel, tolerance)
        # One element may be declared with any number of axes: the contraction has none.
        return ReferenceValues(whole.values.reshape(output.shape), whole.bound.reshape(output.shape))
    grid = mask.reshape(mask.shape if mask.ndim > 1 else (-1, 1))
    parts: list[ReferenceValues] = []
    for lead in np.ndindex(grid.shape[:-2]):
        for rows, columns in rectangles(grid[lead]):
            picks = [*(np.array([i]) for i in lead), rows, columns]
            select = dict(zip(contraction.output, picks, strict=False))
            part = _contract(contraction, take(contraction, arrays, select), output, kernel, tolerance)
            flat = np.ravel_multi_index(np.ix_(*picks), grid.shape).reshape(-1)
            kept = mask.reshape(-1)[flat]
            bound = part.bound.reshape(-1)[kept]
            parts.append(ReferenceValues(part.values.reshape(-1)[kept], bound, flat[kept]))
    return _joined(parts, np.dtype(np.int64 if output.dtype.is_integer else np.float64))


def _contract(
    contraction: Contraction, arrays: Sequence[Array], output: ResolvedArray, kernel: DType, tolerance: float
) -> ReferenceValues:
    if output.dtype.is_integer:
        whole = _integer_product(contraction, arrays, output.name)
        require_in_range(output.name, whole, output.dtype)
        return _exact(whole)
    wide = [a.astype(np.float64) for a in arrays]
    values = evaluate(contraction, wide)
    require_in_range(output.name, values, output.dtype)
    peak = math.prod(max(-float(a.min()), float(a.max())) for a in wide)
    del wide  # as large as the result, and the magnitudes come next
    bound = contraction_bound(
        values,
        _magnitudes(contraction, arrays, kernel, peak),
        terms=contraction.terms,
        operands=len(arrays),
        peak=peak,
        kernel=kernel,
        output=output.dtype,
        tolerance=tolerance,
    )
    return ReferenceValues(values, bound)


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


def _integer_product(contraction: Contraction, arrays: Sequence[Array], name: str) -> npt.NDArray[np.int64]:
    """Exact. Through float64 where no partial sum can exceed 2^53: every step is then exact in it."""
    # Not by `abs`: the lowest int8 has no positive counterpart.
    reach = contraction.terms * math.prod(max(1, -int(a.min()), int(a.max())) for a in arrays)
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
