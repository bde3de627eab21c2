"""A regression forest over level indices: all trees grow at once, a depth a step.

Trees of Breiman's random forest (Machine Learning 45, 2001) with splits on histograms: a parameter has few levels,
so a node needs only counts and sums a level. A parameter without order is split by its levels' means in the node,
which is the best of all its splits for squared error (Breiman et al., Classification and Regression Trees, 4.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sweeper.importance.configurations import Floats, Indices

__all__ = ["Forest", "grown"]

_LOOKED_AT = 0.7
"""The share of parameters that a node may be split by, drawn anew for each."""
_CELLS = 2_000_000
_DEEPEST = 24


@dataclass(frozen=True)
class _Nodes:
    """Nodes of some trees, the first `roots` being the roots. `child` (nodes, levels) is where a level of the node's
    parameter leads; a leaf leads to itself."""

    roots: int
    depth: int
    parameter: Indices
    child: Indices
    value: Floats


@dataclass(frozen=True)
class Forest:
    """Trees in the order of their bags."""

    chunks: tuple[_Nodes, ...]

    def predict(self, codes: Indices) -> Floats:
        """What each tree says at each of `codes` (points, parameters): (points, trees)."""
        return np.concatenate([_predicted(nodes, codes) for nodes in self.chunks]).T


def grown(
    codes: Indices,
    counts: Sequence[int],
    ordered: Sequence[bool],
    values: Floats,
    bags: Indices,
    rng: np.random.Generator,
) -> Forest:
    """A tree for each of `bags` (trees, rows): places in `codes` (points, parameters) and `values`, repeated or not."""
    cells = max(1, bags.shape[1] // 2 * len(counts) * max(counts))
    at_once = max(1, _CELLS // cells)
    chunks = [
        _grow(codes, counts, np.array(ordered, dtype=bool), values, bags[start : start + at_once], rng)
        for start in range(0, len(bags), at_once)
    ]
    return Forest(tuple(chunks))


def _predicted(nodes: _Nodes, codes: Indices) -> Floats:
    levels, children = codes.T.astype(np.int32).ravel(), nodes.child.ravel()
    start = (nodes.parameter * len(codes)).astype(np.int32)
    points = np.arange(len(codes), dtype=np.int32)
    at: Indices = np.repeat(np.arange(nodes.roots, dtype=np.int32)[:, None], len(codes), axis=1)
    for _ in range(nodes.depth):
        own = levels.take(start.take(at) + points)
        at = children.take(at * np.int32(nodes.child.shape[1]) + own)
    return np.asarray(nodes.value.take(at))


def _grow(
    codes: Indices,
    counts: Sequence[int],
    ordered: npt.NDArray[np.bool_],
    values: Floats,
    bags: Indices,
    rng: np.random.Generator,
) -> _Nodes:
    width, most = len(counts), max(counts)
    rows, node = bags.ravel(), np.repeat(np.arange(len(bags)), bags.shape[1])
    parts: list[tuple[Indices, Indices, npt.NDArray[np.bool_], Floats]] = []
    made = depth = 0
    live = len(bags)
    while live:
        cell = (node[:, None] * width + np.arange(width)) * most + codes[rows]
        held, sums = _histograms(cell, values[rows], (live, width, most))
        parameter, to_left, splits = _best_split(held, sums, ordered, rng)
        if depth == _DEEPEST:
            splits[:] = False
        mean = sums[:, 0].sum(axis=1) / held[:, 0].sum(axis=1)
        place = np.cumsum(splits) - 1
        here = made + np.arange(live)
        left = np.where(splits, made + live + 2 * place, here)
        parts.append((np.where(splits, parameter, 0), left, to_left | ~splits[:, None], mean))
        going = splits[node]
        rows, node = rows[going], node[going]
        goes_left = to_left[node, codes[rows, parameter[node]]]
        node = 2 * place[node] + ~goes_left
        made += live
        live = 2 * int(splits.sum())
        depth += 1
    parameter, left, to_left, mean = (np.concatenate(kind) for kind in zip(*parts, strict=True))
    child = (left[:, None] + ~to_left).astype(np.int32)
    return _Nodes(len(bags), depth, parameter, child, mean)


def _histograms(cell: Indices, values: Floats, shape: tuple[int, int, int]) -> tuple[Floats, Floats]:
    size = int(np.prod(shape))
    held = np.bincount(cell.ravel(), minlength=size).astype(np.float64)
    sums = np.asarray(
        np.bincount(cell.ravel(), np.repeat(values, cell.shape[1]), minlength=size), dtype=np.float64
    )
    return held.reshape(shape), sums.reshape(shape)


def _best_split(
    held: Floats, sums: Floats, ordered: npt.NDArray[np.bool_], rng: np.random.Generator
) -> tuple[Indices, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """For each node the parameter, which of its levels go left, and whether it is split at all."""
    live, width, most = held.shape
    rank = np.broadcast_to(np.arange(most), held.shape)
    if not ordered.all():
        free = ~ordered
        means = np.where(held > 0, sums / np.maximum(held, 1), np.inf)[:, free]
        order = np.array(rank)
        order[:, free] = np.argsort(means, axis=2, kind="stable")
        held = np.take_along_axis(held, order, axis=2)
        sums = np.take_along_axis(sums, order, axis=2)
        rank = np.argsort(order, axis=2)
    left, below = held.cumsum(axis=2), sums.cumsum(axis=2)
    count, total = left[:, :1, -1:], below[:, :1, -1:]
    right, above = count - left, total - below
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = below**2 / left + above**2 / right - total**2 / count
    gain[(left == 0) | (right == 0)] = -1.0
    gain[rng.random((live, width)) > _LOOKED_AT] *= 1e-6  # taken only where nothing else splits
    best = gain.reshape(live, -1).argmax(axis=1)
    parameter, cut = np.divmod(best, most)
    to_left = rank[np.arange(live), parameter] <= cut[:, None]
    return parameter, to_left, gain.reshape(live, -1)[np.arange(live), best] > 1e-12
