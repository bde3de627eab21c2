"""Seeded results, right and wrong, of every class: for tests of how outputs are compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from sweeper.dtypes import DType, dtype
from sweeper.model import Direction
from sweeper.problem.arguments import ResolvedArray
from sweeper.problem.reference import ReferenceValues
from sweeper.problem.verify import poison

FLOATING = ("float64", "float32", "tf32", "float16", "bfloat16")
WHOLE = ("int8", "int32", "int64", "uint32", "uint64")
# One, odd, more than one part a thread block compares, and a multiple of everything.
SIZES = (1, 77, 1024, 5000)


@dataclass(frozen=True)
class Case:
    """Results `got` of an output, and what they should be."""

    name: str
    array: ResolvedArray
    got: np.ndarray
    reference: ReferenceValues


def output(precision: str, size: int) -> ResolvedArray:
    shape = (size // 8, 8) if size % 8 == 0 else (size,)
    return ResolvedArray("C", dtype(precision), shape, Direction.OUT, "uniform")


def cases(precision: str, size: int, seed: int) -> Iterator[Case]:
    """Right results, and the same with every kind of fault that fits so many elements."""
    array, rng = output(precision, size), np.random.default_rng(seed)
    right, reference = _right(array, rng)
    for name, places, values in _faults(array.dtype, size, rng):
        got = right.copy()
        got.reshape(-1)[places] = values if values is not None else poison(array).reshape(-1)[places]
        yield Case(f"{precision}-{size}-{name}", array, got, reference)


def _right(array: ResolvedArray, rng: np.random.Generator) -> tuple[np.ndarray, ReferenceValues]:
    storage = array.dtype.storage
    if array.dtype.is_integer:
        low = 0 if storage.kind == "u" else -100
        values = rng.integers(low, 100, array.shape).astype(np.int64)
        return values.astype(storage), ReferenceValues(values, np.broadcast_to(np.float64(0.0), array.shape))
    want = rng.standard_normal(array.shape)
    got = want.astype(storage)
    # Some elements lie exactly on their bound.
    bound = np.abs(got.astype(np.float64) - want) * rng.choice([1.0, 1.5, 4.0], array.shape) + 1e-300
    return got, ReferenceValues(want, bound)


def _faults(precision: DType, size: int, rng: np.random.Generator) -> Iterator[tuple[str, list[int], object]]:
    last, middle = size - 1, size // 2
    yield "right", [], 0
    yield "first wrong", [0], 101
    yield "last wrong", [last], 101
    yield "first and last wrong", [0, last], 101
    yield "all wrong", list(range(size)), 101
    yield "never written", list(range(middle, size)), None
    some = sorted(int(i) for i in rng.choice(size, min(size, 7), replace=False))
    yield "some wrong", some, 101
    if not precision.is_integer:
        largest = float(ml_dtypes.finfo(precision.storage).max)
        yield "one NaN", [middle], np.nan
        yield "one infinite", [middle], np.inf
        yield "one huge", [middle], -largest
        yield "NaN, infinite and wrong", [0, middle, last], np.array([np.nan, -np.inf, 101.0])[:3]
