"""How long the host's CPU takes for a contraction: what a kernel's speed-up is often told against.

NumPy's matrix product in the kernel's own type, by its BLAS and with all of its threads. There is no BLAS for
16-bit types and small integers: those are computed in float32, which is faster than NumPy's own loops.
A product that would take long is timed on its first rows, and the time scaled.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.problem.contraction import Contraction, evaluate
from sweeper.problem.problem import Problem

__all__ = ["HostTime", "time_on_host"]

Array = npt.NDArray[Any]

_FIRST_FLOPS = 2e8
_MOST_REPEATS = 5
_GROWTH = 4
_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class HostTime:
    """Milliseconds of one product on the CPU, and how they were found."""

    time_ms: float
    note: str


def time_on_host(
    problem: Problem,
    inputs: Mapping[str, Array],
    *,
    seconds: float = 1.0,
    clock: Callable[[], float] = time.perf_counter,
) -> HostTime | None:
    """The median of a few products within about `seconds`, after an untimed one; None for what is no contraction."""
    contraction = problem.contraction
    if contraction is None or not contraction.output:
        return None
    kind = np.dtype(np.float64 if problem.spec.dtype.name == "float64" else np.float32)
    operands = [inputs[a.name].astype(kind, copy=False) for a in problem.arrays if a.is_input]
    total = contraction.sizes[contraction.output[0]]
    run = _Slabs(contraction, operands, clock)
    rows = min(total, math.ceil(_FIRST_FLOPS / (contraction.flops / total)))
    run(rows)
    took = run(rows)
    # A few rows are slower than their share of many: the time of a part says how many more to try, not all.
    while rows < total and 2 * took <= seconds:
        grown = math.ceil(rows * min(_GROWTH, seconds / took))
        rows = total if grown > 0.8 * total else grown
        took = run(rows)
    samples = [took]
    while len(samples) < _MOST_REPEATS and sum(samples) + took < seconds:
        samples.append(run(rows))
    part = "" if rows == total else f", scaled from {rows} of {total} rows"
    note = f"NumPy {kind.name}, at most {_threads()} threads{part}"
    return HostTime(1e3 * statistics.median(samples) * total / rows, note)


class _Slabs:
    """The contraction for the first rows of its output, timed in seconds."""

    def __init__(
        self, contraction: Contraction, operands: Sequence[Array], clock: Callable[[], float]
    ) -> None:
        self._contraction = contraction
        self._operands = operands
        self._clock = clock

    def __call__(self, rows: int) -> float:
        letter = self._contraction.output[0]
        parts = [
            data[tuple(slice(rows) if x == letter else slice(None) for x in letters)]
            for letters, data in zip(self._contraction.operands, self._operands, strict=True)
        ]
        began = self._clock()
        _contract(self._contraction, parts)
        return self._clock() - began


def _contract(contraction: Contraction, parts: Sequence[Array]) -> Array:
    """A matrix product by one call of BLAS, as a program would; any other contraction by several."""
    letters, out = contraction.operands, contraction.output
    two = len(letters) == 2 and all(len(x) == len(set(x)) == 2 for x in (*letters, out))
    summed = set(letters[0]) & set(letters[-1]) - set(out)
    if not two or len(summed) != 1:
        return evaluate(contraction, parts)
    k = summed.pop()
    first, second = (part if x[1] == k else part.T for x, part in zip(letters, parts, strict=True))
    # Both have their rows in the output and are summed along their second axis.
    product: Array = first @ second.T
    return product if out[0] in letters[0] else product.T


def _threads() -> int:
    """How many threads a BLAS takes at most: as many as it is told, else one a processor that we may use."""
    told = [int(value) for name in _THREADS if (value := os.environ.get(name, "")).isdigit()]
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([allowed, *(n for n in told if n)])
