"""What part of a large problem the emulator runs: a smaller shape, and a sample of blocks.

A shape too large to emulate whole is verified in two steps: every block at a smaller shape with the same
remainders, and some blocks at the true one.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from sweeper.device import Target
from sweeper.errors import ConfigError
from sweeper.expressions import Expression, Value
from sweeper.kernel.sizes import completed, sizes_behind
from sweeper.model import KernelSpec, Point
from sweeper.resources.geometry import evaluate_launch, point_scope, why_unsupported

__all__ = ["is_small", "reduced_dims", "sample_blocks"]

# Sizes up to _KEPT stay as they are. A larger one becomes _BASE plus its remainder by _PERIOD, so that it
# ends within a tile, a vector and a warp exactly where the true size does, after several whole tiles.
_KEPT = 160
_BASE = 128
_PERIOD = 32
_STEPS = (0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 20, 28, 44, 60, 92, 124, 252, 508)
_MOST_TRIES = 400


def is_small(dims: Mapping[str, int]) -> bool:
    """Whether a problem of this shape is run whole without asking what that costs."""
    return all(size <= _KEPT for size in dims.values())


def reduced_dims(
    spec: KernelSpec, point: Point, dims: Mapping[str, int], target: Target
) -> dict[str, int] | None:
    """The smallest shape worth running whole instead of `dims`; None where `dims` are small or none will do.

    Every size above 160 is replaced by one of 128 + (size mod 32) + 32·i, such that what the kernel
    requires, its constraints and its launch hold there too. An optional size keeps its distance from what it
    would be by default, down to the same remainder.
    """
    plain = {name: size for name, size in dims.items() if name in spec.dims}
    if is_small(plain):
        return None
    names = [name for name, size in plain.items() if size > _KEPT]
    levels = [_allowed_alone(spec, point, dims, name, target) for name in names]
    if not all(levels):
        return None
    for tries, sizes in enumerate(_by_product(levels)):
        smaller = {**plain, **dict(zip(names, sizes, strict=True))}
        if tries >= _MOST_TRIES or smaller == plain:
            return None
        smaller |= _optional(spec, dims, smaller)
        if _allowed(spec, point, smaller, target):
            return smaller
    return None


def _optional(spec: KernelSpec, dims: Mapping[str, int], smaller: Mapping[str, int]) -> dict[str, int]:
    """The optional sizes of `dims`, as far from their defaults at `smaller` as they are from those at `dims`."""
    plain = {name: size for name, size in dims.items() if name in spec.dims}
    usual, reduced = completed(spec, plain), completed(spec, smaller)
    apart = {name: size - usual[name] for name, size in dims.items() if name not in plain}
    return {
        name: reduced[name] + (gap if abs(gap) <= _KEPT else _BASE + gap % _PERIOD)
        for name, gap in apart.items()
    }


def _levels(size: int) -> list[int]:
    base = _BASE + size % _PERIOD
    return [*(base + _PERIOD * step for step in _STEPS if base + _PERIOD * step < size), size]


def _allowed_alone(
    spec: KernelSpec, point: Point, dims: Mapping[str, int], name: str, target: Target
) -> list[int]:
    """The levels of one size that hold by themselves what is asked of it alone."""
    scope = point_scope(spec, point, dims, target)
    alone = [
        condition
        for condition in (*spec.requires.conditions, *spec.constraints)
        if sizes_behind(spec, condition.names, dims) == {name} and condition.names <= set(scope)
    ]
    sizes = _levels(dims[name])
    return [s for s in sizes if _hold(alone, {**scope, **completed(spec, {**dims, name: s})})]


def _hold(conditions: Iterable[Expression], scope: Mapping[str, Value]) -> bool:
    try:
        return all(condition.evaluate(scope) for condition in conditions)
    except ConfigError:
        return False


def _by_product(levels: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Every choice of one value each, smallest product first."""
    start = (0,) * len(levels)
    heap = [(math.prod(values[0] for values in levels), start)]
    seen = {start}
    while heap:
        _, indices = heapq.heappop(heap)
        yield tuple(values[i] for values, i in zip(levels, indices, strict=True))
        for axis, values in enumerate(levels):
            following = (*indices[:axis], indices[axis] + 1, *indices[axis + 1 :])
            if following[axis] < len(values) and following not in seen:
                seen.add(following)
                product = math.prod(v[i] for v, i in zip(levels, following, strict=True))
                heapq.heappush(heap, (product, following))


def _allowed(spec: KernelSpec, point: Point, dims: Mapping[str, int], target: Target) -> bool:
    if why_unsupported(spec, dims, target):
        return False
    scope = point_scope(spec, point, dims, target)
    try:
        evaluate_launch(spec.launch, scope, where=spec.name)
    except ConfigError:
        return False
    return _hold(spec.constraints, scope)


def sample_blocks(grid: tuple[int, int, int], count: int, seed: int) -> npt.NDArray[np.uint64]:
    """Up to `count` of the grid's blocks as ascending linear indices: the first and the last along each
    axis, and some between that `seed` chooses.

    They are all combinations of a few indices an axis. For a matrix that means few distinct rows and
    columns, and corners, edges and the interior are all there.
    """
    shares = _shares(grid, count)
    generator = np.random.Generator(np.random.PCG64([seed, *grid]))
    x, y, z = (_along(size, share, generator) for size, share in zip(grid, shares, strict=True))
    linear = x[None, None, :] + grid[0] * (y[None, :, None] + grid[1] * z[:, None, None])
    return np.sort(linear.reshape(-1)).astype(np.uint64)


def _shares(grid: tuple[int, int, int], count: int) -> list[int]:
    """How many indices along each axis, as equal as they can be with a product of at most `count`."""
    shares = [1, 1, 1]
    while True:
        larger = [
            axis
            for axis in range(3)
            if shares[axis] < grid[axis] and math.prod(shares) // shares[axis] * (shares[axis] + 1) <= count
        ]
        if not larger:
            return shares
        shares[min(larger, key=lambda axis: shares[axis])] += 1


def _along(size: int, share: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    if share == 1:
        return np.array([size - 1])
    ends = [0, size - 1]
    inner: Sequence[int] = []
    if share > 2:
        inner = (generator.choice(size - 2, share - 2, replace=False) + 1).tolist()
    return np.array(sorted([*ends, *inner]))
