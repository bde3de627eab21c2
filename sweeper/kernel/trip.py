"""A description's `trip`: that the whole way from host to host is timed, and into what parts it is cut.

    trip: {axis: M, chunks: chunks, streams: streams, pinned: pinned}

A kernel can be cut along a size if its launch for fewer rows computes just those: every array that it writes
has the size for its first axis, and arguments and grid follow from the size by their expressions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sweeper.errors import KernelError, did_you_mean
from sweeper.expressions import Expression, parse
from sweeper.model import ArraySpec, Direction, KernelSpec, ScalarSpec, TripSpec

__all__ = ["is_cut", "trip", "trip_expressions"]

_DEFAULTS = {"chunks": 1, "streams": 1, "pinned": 0}
_KEYS = ("axis", *_DEFAULTS)


def trip(
    node: Any,
    dims: Collection[str],
    args: Sequence[ArraySpec | ScalarSpec],
    *,
    uncuttable: str,
    where: str,
) -> TripSpec | None:
    """The trip that `node` describes, if any.

    `uncuttable` names what of the kernel's launch a part cannot have, if anything. Raises KernelError for a trip
    that it or the arguments do not allow.
    """
    if node is None:
        return None
    if not isinstance(node, Mapping):
        raise KernelError(f"{where}: {node!r} is not a mapping", hint=f"its keys are {', '.join(_KEYS)}")
    for key in node:
        if key not in _KEYS:
            raise KernelError(
                f"{where}.{key}: unknown key{did_you_mean(str(key), _KEYS)}",
                hint=f"known: {', '.join(_KEYS)}",
            )
    axis = str(node.get("axis", ""))
    if axis not in dims:
        raise KernelError(f"{where}.axis: {axis!r} is none of the sizes {', '.join(dims)}")
    if uncuttable:
        raise KernelError(f"{where}: a kernel with {uncuttable} cannot be cut into parts")
    parts = (parse(node.get(key, default), where=f"{where}.{key}") for key, default in _DEFAULTS.items())
    made = TripSpec(axis, *parts)
    _require_cuttable([a for a in args if isinstance(a, ArraySpec)], made, where)
    return made


def _require_cuttable(arrays: Sequence[ArraySpec], made: TripSpec, where: str) -> None:
    for argument in arrays:
        if argument.direction in (Direction.INOUT, Direction.SCRATCH):
            raise KernelError(f"{where}: {argument.name} is {argument.direction}, only in and out can be cut")
        if argument.direction is Direction.OUT and not is_cut(argument, made):
            raise KernelError(
                f"{where}: {argument.name} is written and its first size is {argument.shape[0].text}, not {made.axis}",
                hint="parts would write the same elements: cut along the first size of every output",
            )


def is_cut(array: ArraySpec, made: TripSpec) -> bool:
    """Whether a part of the problem needs just a part of `array`."""
    return array.shape[0].text == made.axis


def trip_expressions(spec: KernelSpec) -> tuple[Expression, ...]:
    return () if spec.trip is None else (spec.trip.chunks, spec.trip.streams, spec.trip.pinned)
