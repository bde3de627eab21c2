"""A kernel's tensor maps at one problem and point: what the driver is told to encode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweeper.dtypes import DType
from sweeper.expressions import Value
from sweeper.model import TensorMapSpec
from sweeper.problem.arguments import ResolvedArray, ResolvedScalar

__all__ = ["ResolvedTensorMap", "resolve_tensor_maps"]


@dataclass(frozen=True, slots=True)
class ResolvedTensorMap:
    """A tensor map of `array`; sizes innermost first, as TMA counts them.

    `sizes` and `box` are in elements; `strides` in bytes, of every axis but the innermost. `swizzle` is 0, 32,
    64 or 128 bytes; outside the array lie zeros, or NaN where `nan`.
    """

    name: str
    array: str
    dtype: DType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    nan: bool


def resolve_tensor_maps(
    specs: Sequence[TensorMapSpec],
    args: Sequence[ResolvedArray | ResolvedScalar],
    scope: Mapping[str, Value],
) -> tuple[ResolvedTensorMap, ...]:
    """`specs` evaluated in `scope`. Raises ExpressionError for a size or a choice that is not whole."""
    arrays = {a.name: a for a in args if isinstance(a, ResolvedArray)}
    return tuple(_resolve(spec, arrays[spec.arrays[_chosen(spec, scope)]], scope) for spec in specs)


def _chosen(spec: TensorMapSpec, scope: Mapping[str, Value]) -> int:
    """The place of the array that `spec` is of. Where a choice is out of range, so is the point: the last."""
    if spec.choice is None:
        return 0
    chosen = spec.choice.evaluate_int(scope, what=f"choice of {spec.name}")
    return min(max(chosen, 0), len(spec.arrays) - 1)


def _resolve(spec: TensorMapSpec, array: ResolvedArray, scope: Mapping[str, Value]) -> ResolvedTensorMap:
    box = [size.evaluate_int(scope, what=f"box of {spec.name}") for size in spec.box]
    strides, step = [], array.pitch * array.dtype.bytes
    for size in array.shape[-2::-1]:
        strides.append(step)
        step *= size
    return ResolvedTensorMap(
        name=spec.name,
        array=array.name,
        dtype=array.dtype,
        sizes=array.shape[::-1],
        strides=tuple(strides),
        box=tuple(box[::-1]),
        swizzle=spec.swizzle.evaluate_int(scope, what=f"swizzle of {spec.name}"),
        nan=spec.fill == "nan",
    )
