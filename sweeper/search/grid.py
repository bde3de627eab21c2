"""Every point, in the order of the space: the first parameter changes slowest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweeper.search.base import SpaceStrategy, checked_options
from sweeper.space import Space

__all__ = ["Grid"]


class Grid(SpaceStrategy):
    """Exhaustive search. Has no options and does not use its seed."""

    independent = True

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
        objectives: int = 1,
    ) -> None:
        super().__init__(space, seed, checked_options("grid", options or {}, {}), objectives)
        self._next = 0

    def _propose(self) -> int:
        while self._taken[self._next]:
            self._next += 1
        return self._next
