"""A search that begins with the kernel's default configuration, whichever strategy goes on from there."""

from __future__ import annotations

from sweeper.search.base import Strategy, Told
from sweeper.search.gain import expected_gain

__all__ = ["DefaultFirst"]


class DefaultFirst:
    """`strategy`, after `row`, the default's in its space.

    The strategy is told what the default took like a row of its own. What it proposes comes in the order that
    it has without the default, which it may be asked for once more and does not get.
    """

    def __init__(self, strategy: Strategy, row: int) -> None:
        self.independent = strategy.independent
        self._strategy = strategy
        self._row = row
        self._begun = False

    def ask(self, count: int = 1) -> list[int]:
        rows: list[int] = []
        if count > 0 and not self._begun:
            self._begun = True
            rows.append(self._row)
        while len(rows) < count:
            more = self._strategy.ask(count - len(rows))
            if not more:
                break
            rows += [row for row in more if row != self._row]
        return rows

    def tell(self, row: int, value: Told) -> None:
        self._strategy.tell(row, value)

    def expected_gain(self) -> float | None:
        """What the strategy expects to gain."""
        return expected_gain(self._strategy)

    def has_taken(self, row: int) -> bool:
        return (self._begun and row == self._row) or self._strategy.has_taken(row)

    def likely(self, count: int) -> list[int]:
        """What the strategy may well ask next."""
        return self._strategy.likely(count)
