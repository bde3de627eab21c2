"""Where the search of a rung at one shape begins: with what was best at shapes like it, and the model's favourites."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweeper.device import Target
from sweeper.model import KernelSpec, Point
from sweeper.resources import resources
from sweeper.search import Strategy
from sweeper.search.base import Told
from sweeper.space import Space

__all__ = ["Seed", "Seeded", "favourites", "nearest"]

_LOOKED_AT = 600
# So many configurations say whether a rung has any prospect beside one that is known.
_FAIR_CHANCE = 10


@dataclass(frozen=True, slots=True)
class Seed:
    """What was best of a kernel at a shape."""

    kernel: str
    dims: Mapping[str, int]
    params: Mapping[str, Any]


def nearest(seeds: Iterable[Seed], kernel: str, dims: Mapping[str, int], most: int) -> list[dict[str, Any]]:
    """Up to `most` different configurations of `kernel`, those of the nearest shapes first (in log sizes)."""

    def distance(seed: Seed) -> float:
        return sum(math.log2(seed.dims[name] / size) ** 2 for name, size in dims.items())

    found: dict[str, dict[str, Any]] = {}
    for seed in sorted((seed for seed in seeds if seed.kernel == kernel), key=distance):
        found.setdefault(Point.of(dict(sorted(seed.params.items()))).key, dict(seed.params))
    return list(found.values())[:most]


def favourites(
    spec: KernelSpec, space: Space, dims: Mapping[str, int], limits: Target, work: tuple[Any, Any], most: int
) -> list[int]:
    """The rows that the static model thinks fastest, of evenly spaced ones where there are many.

    `work` has the problem's FLOP and bytes. None where the kernel says nothing of its work.
    """
    flops, traffic = work
    predicted = []
    for row in range(0, len(space), max(1, len(space) // _LOOKED_AT)):
        figures = resources(spec, space.point(row), dims, limits, flops=flops, bytes=traffic)
        if figures.predicted_ms is not None:
            predicted.append((figures.predicted_ms, row))
    return [row for _, row in sorted(predicted)[:most]]


class Seeded:
    """`rows`, each once, and then what `strategy` makes of their times; nothing more once `over` says so, or once
    ten have run and none of them took less than `hopeless_ms`.
    """

    independent = False

    def __init__(
        self,
        strategy: Strategy,
        rows: Sequence[int],
        over: Callable[[], bool] = lambda: False,
        hopeless_ms: float = math.inf,
    ) -> None:
        self._strategy = strategy
        self._over = over
        self._asked = False
        self._hopeless_ms = hopeless_ms
        self._times: list[float] = []
        self._first = list(dict.fromkeys(rows))
        self._begun = set(self._first)

    def ask(self, count: int = 1) -> list[int]:
        """See Strategy."""
        hopeless = len(self._times) >= _FAIR_CHANCE and min(self._times) >= self._hopeless_ms
        if self._asked and (hopeless or self._over()):
            return []
        self._asked = True
        rows, self._first = self._first[:count], self._first[count:]
        while len(rows) < count:
            more = self._strategy.ask(count - len(rows))
            if not more:
                break
            rows += [row for row in more if row not in self._begun]
        return rows

    def likely(self, count: int) -> list[int]:
        """See Strategy."""
        rest = [row for row in self._strategy.likely(count) if row not in self._begun]
        return [*self._first, *rest][:count]

    def has_taken(self, row: int) -> bool:
        """See Strategy."""
        return (row in self._begun and row not in self._first) or self._strategy.has_taken(row)

    def tell(self, row: int, value: Told) -> None:
        """See Strategy."""
        if isinstance(value, float):
            self._times.append(value)
        self._strategy.tell(row, value)
