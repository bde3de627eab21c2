"""A problem cut along one of its sizes: each part is the same problem with fewer rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sweeper.errors import ConfigError
from sweeper.expressions import Value
from sweeper.kernel.trip import is_cut
from sweeper.model import KernelSpec, Point
from sweeper.problem.arguments import ResolvedArray
from sweeper.problem.problem import Problem, resolve

__all__ = ["Part", "Slab", "TripPlan", "told", "trip_plan"]


@dataclass(frozen=True, slots=True)
class Part:
    """The bytes of one array, as it lies in memory, that a slab needs."""

    array: str
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Slab:
    """`problem` is the whole one for the rows of this part alone; `reads` and `writes` are what it needs of them."""

    problem: Problem
    reads: tuple[Part, ...]
    writes: tuple[Part, ...]
    offsets: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TripPlan:
    """How the way from host to host is cut at one point: `whole` is copied before the first of `slabs`."""

    slabs: tuple[Slab, ...]
    whole: tuple[Part, ...]
    streams: int
    pinned: bool

    def __str__(self) -> str:
        return told(parts=len(self.slabs), streams=self.streams, pinned=self.pinned)


def told(*, parts: int, streams: int, pinned: bool) -> str:
    """`host to host, pinned, 4 parts on 2 streams`."""
    kind = "pinned" if pinned else "pageable"
    return f"host to host, {kind}, {parts} part{'s' * (parts > 1)} on {streams} stream{'s' * (streams > 1)}"


def trip_plan(spec: KernelSpec, problem: Problem, point: Point, scope: Mapping[str, Value]) -> TripPlan:
    """What `spec.trip` says at `point`, whose names `scope` has.

    Slabs are of ⌈size/chunks⌉ rows, the last one of what is left. Raises ConfigError for fewer than one part or
    stream, ExpressionError for a number that is not whole.
    """
    trip = spec.trip
    if trip is None:
        raise AssertionError("only a kernel with a trip has a plan of one")
    chunks = trip.chunks.evaluate_int(scope, what="trip.chunks")
    streams = trip.streams.evaluate_int(scope, what="trip.streams")
    if min(chunks, streams) < 1:
        raise ConfigError(
            f"{spec.name}: trip with {chunks} chunks on {streams} streams: at least one of each"
        )
    cut = {a.name for a in spec.arrays if is_cut(a, trip)}
    total = problem.dims[trip.axis]
    rows = math.ceil(total / chunks)
    slabs = tuple(
        _slab(spec, problem, point, trip.axis, cut, first, min(rows, total - first))
        for first in range(0, total, rows)
    )
    whole = tuple(Part(a.name, 0, a.stored_bytes) for a in problem.arrays if a.is_input and a.name not in cut)
    return TripPlan(slabs, whole, streams, bool(trip.pinned.evaluate(scope)))


def _slab(
    spec: KernelSpec, problem: Problem, point: Point, axis: str, cut: set[str], first: int, rows: int
) -> Slab:
    # Optional sizes, such as leading dimensions, stay those of the whole: its rows lie where they lie.
    dims = {**problem.dims, axis: rows}
    parts = {a.name: _part(a, first, rows) for a in problem.arrays if a.name in cut}
    return Slab(
        problem=resolve(spec, dims, point, seed=problem.seed),
        reads=tuple(parts[a.name] for a in problem.arrays if a.name in parts and a.is_input),
        writes=tuple(parts[a.name] for a in problem.arrays if a.name in parts and a.is_output),
        offsets={name: part.offset for name, part in parts.items()},
    )


def _part(array: ResolvedArray, first: int, rows: int) -> Part:
    """`rows` of the first axis from `first`; behind the array's last row there is no gap."""
    stride = math.prod(array.shape[1:-1]) * array.pitch if len(array.shape) > 1 else 1
    end = min((first + rows) * stride, array.stored_size)
    return Part(array.name, first * stride * array.dtype.bytes, (end - first * stride) * array.dtype.bytes)
