"""Problem sizes at which kernels go wrong: single rows, odd remainders, and one beside every tile.

How much of a size one block, or one step, covers is not declared anywhere. It is read off the launch:
the largest size for which a grid expression still has its smallest value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sweeper.device import Target
from sweeper.errors import ConfigError
from sweeper.expressions import Expression, Value
from sweeper.kernel.sizes import completed, sizes_behind
from sweeper.model import KernelSpec, Point
from sweeper.resources.geometry import evaluate_launch, point_scope, why_not_launchable, why_unsupported

__all__ = ["ShapeChoice", "edge_shapes", "why_infeasible"]

Dims = dict[str, int]

# Sizes that are a multiple of no tile; the first set is below most tiles, the second beyond several.
_ODD = ((31, 33, 17, 3, 5), (33, 65, 129, 5, 3))
_LARGEST = 1 << 14
# Points of the index space that one case may have: what the instrumented emulator runs in about a second.
_MOST_POINTS = 1 << 21
_SMALL = 5
_TILE_LEVELS = range(2, 257)
_MOST_TILES = 3
# Which of the wanted shapes comes once more with optional sizes that differ from their defaults, and by how much.
_SPACED = 1
_APART = (3, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class ShapeChoice:
    """The `shapes` for one configuration; `moved` of them are next to the wanted one, which its conditions
    forbid. `skipped` wanted ones have no such neighbour; `reason` is the first one's."""

    shapes: tuple[Dims, ...]
    moved: int = 0
    skipped: int = 0
    reason: str = ""


def edge_shapes(spec: KernelSpec, point: Point, target: Target, *, limit: int) -> ShapeChoice:
    """Up to `limit` shapes for `spec` at `point`, the most telling first."""
    tiles = _tiles(spec, point, target)
    allowed = {name: _allowed_alone(spec, point, target, name) for name in spec.dims}
    chosen: dict[tuple[int, ...], Dims] = {}
    moved = skipped = 0
    reason = ""
    for number, wanted in enumerate(_wanted(list(spec.dims), tiles)):
        if len(chosen) == limit:
            break
        light = _lighter(wanted)
        dims = {name: _nearest(allowed[name], size) for name, size in light.items()}
        key = tuple(dims.values())
        if key in chosen:
            continue
        problem = why_infeasible(spec, point, dims, target)
        if problem:
            skipped += 1
            reason = reason or f"{problem} at {'x'.join(map(str, key))}"
        else:
            moved += dims != light
            chosen[key] = dims
            if number == _SPACED and len(chosen) < limit:
                spaced = _spaced(spec, point, dims, target)
                chosen[tuple(spaced.values())] = spaced
    return ShapeChoice(tuple(chosen.values()), moved, skipped, reason)


def _spaced(spec: KernelSpec, point: Point, dims: Dims, target: Target) -> Dims:
    """`dims` with its optional sizes larger than by default, by as little as the kernel takes; else `dims`."""
    for apart in _APART if spec.optional_dims else ():
        usual = completed(spec, dims)
        spaced = dims | {name: usual[name] + apart * (i + 1) for i, name in enumerate(spec.optional_dims)}
        if not why_infeasible(spec, point, spaced, target):
            return spaced
    return dims


def why_infeasible(spec: KernelSpec, point: Point, dims: Mapping[str, int], target: Target) -> str:
    """Why `point` cannot run at `dims`; empty where it can."""
    unsupported = why_unsupported(spec, dims, target)
    if unsupported:
        return unsupported
    scope = point_scope(spec, point, dims, target)
    try:
        launch = evaluate_launch(spec.launch, scope, where=spec.name)
        broken = next((c for c in spec.constraints if not c.evaluate(scope)), None)
        return broken.explain(scope) if broken else why_not_launchable(launch, target) or ""
    except ConfigError as error:
        return error.message


def _wanted(names: Sequence[str], tiles: Mapping[str, Sequence[int]]) -> Iterator[Dims]:
    """Shapes in the order of what they tell, whether they are feasible or not."""
    small, large = ({name: odd[i % len(odd)] for i, name in enumerate(names)} for odd in _ODD)
    tile = {name: tiles[name][0] for name in names}
    yield dict.fromkeys(names, 1)
    yield small
    yield {name: size + 1 for name, size in tile.items()}
    for name in names:
        yield {**small, name: 1}
    yield tile
    yield {name: max(1, size - 1) for name, size in tile.items()}
    for name in names:
        yield {**tile, name: tile[name] + 1}
    # Several steps, whole and with a remainder: a stage that is used again too early shows only then.
    for name in names:
        yield {**tile, name: 3 * tile[name]}
    yield {name: 2 * size + 1 for name, size in tile.items()}
    yield large
    for name in names:
        for size in tiles[name][1:]:
            for beside in (size + 1, size, max(1, size - 1)):
                yield {**tile, name: beside}


def _lighter(dims: Dims) -> Dims:
    """`dims`, with all but its largest size made small where it has more points than a case may have."""
    if math.prod(dims.values()) <= _MOST_POINTS:
        return dims
    largest = max(dims, key=lambda name: dims[name])
    return {name: size if name == largest else min(size, _SMALL) for name, size in dims.items()}


def _tiles(spec: KernelSpec, point: Point, target: Target) -> dict[str, list[int]]:
    """For each size, how much of it a block or a step covers, the surest guess first."""
    base = dict.fromkeys(spec.dims, 1)
    scope = point_scope(spec, point, base, target)
    grids = [e for e in spec.launch.grid if e.names & set(spec.dims)]
    steps = [spec.model.steps] if spec.model.steps is not None else []
    guesses = _guesses(spec, point, scope)
    tiles = {}
    for name in spec.dims:
        covers = [_covered(e, name, scope) for e in (*grids, *steps) if name in e.names]
        found = [size for size in covers if size is not None]
        tiles[name] = list(dict.fromkeys(found or guesses))[:_MOST_TILES]
    return tiles


def _guesses(spec: KernelSpec, point: Point, scope: Mapping[str, Value]) -> list[int]:
    """Whole levels of the parameters and the block's extents, smallest first; 16 where there is none."""
    sizes = {v for v in point.params.values() if isinstance(v, int) and v in _TILE_LEVELS}
    for extent in spec.launch.block:
        try:
            sizes.add(extent.evaluate_int(scope, what="block"))
        except ConfigError:
            continue
    return sorted(size for size in sizes if size in _TILE_LEVELS and size > 3) or [16]


def _covered(expression: Expression, name: str, scope: Mapping[str, Value]) -> int | None:
    """The largest size `name` at which `expression` is what it is at 1, the other sizes being 1.

    Where that is 0 (`N // tile`), the smallest size at which it is not.
    """

    def value(size: int) -> Value:
        return expression.evaluate({**scope, name: size})

    try:
        least, high = value(1), 2
        while value(high) == least:
            high *= 2
            if high > _LARGEST:
                return None
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if value(middle) == least else (low, middle)
    except ConfigError:
        return None
    return high if least == 0 else low


def _allowed_alone(spec: KernelSpec, point: Point, target: Target, name: str) -> npt.NDArray[np.int64]:
    """The values of one size that hold by themselves what is asked of it alone; any where none does."""
    scope: dict[str, Value | npt.NDArray[np.int64]] = dict(
        point_scope(spec, point, dict.fromkeys(spec.dims, 1), target)
    )
    sizes = np.arange(1, _LARGEST + 1)
    allowed = np.ones(len(sizes), np.bool_)
    scope[name] = sizes
    # An optional size follows the one it is a default of.
    scope |= {n: e.evaluate_columns(scope) for n, e in spec.optional_dims.items() if name in e.names}
    for condition in _of(name, (*spec.requires.conditions, *spec.constraints), spec, scope):
        allowed &= condition.evaluate_columns(scope).astype(np.bool_)
    return sizes[allowed] if allowed.any() else sizes


def _of(
    name: str, conditions: Iterable[Expression], spec: KernelSpec, scope: Mapping[str, object]
) -> Iterator[Expression]:
    """The conjuncts that name this size and no other, nor anything that depends on others."""
    for condition in conditions:
        for part in condition.conjuncts():
            if sizes_behind(spec, part.names) == {name} and part.names <= set(scope):
                yield part


def _nearest(allowed: npt.NDArray[np.int64], size: int) -> int:
    """The allowed value nearest to `size`; of two the larger."""
    distance = np.abs(allowed - size)
    return int(allowed[len(allowed) - 1 - int(distance[::-1].argmin())])
