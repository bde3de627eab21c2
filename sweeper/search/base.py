"""What a search strategy is: ask for rows of a space, tell what they took.

A strategy never sees a kernel. It is made from a space, a seed and its options, and everything it
returns follows from these and from the order of the calls. No row is returned twice, and none that was
told; `ask` gives fewer rows than wanted, and at last none, when the space is used up: a normal end.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from sweeper.errors import ConfigError, did_you_mean
from sweeper.space import Space

__all__ = ["Choice", "Number", "SpaceStrategy", "Strategy", "Told", "checked_options"]

Told = float | tuple[float, ...] | None
"""What a row came to: one value, several of a search with several objectives, or None for a failure."""


class Strategy(Protocol):
    """The seam between the loop and a search.

    `independent` says that no result changes which rows come next, so that any number of them may be asked
    ahead.
    """

    independent: bool

    def ask(self, count: int = 1) -> list[int]:
        """Up to `count` rows of the space that were neither asked nor told before."""
        ...

    def tell(self, row: int, value: Told) -> None:
        """The time of `row` in ms (any finite number to be minimised), or None for a failed configuration.

        A strategy that was made for several objectives is told a tuple of as many. A row that was never asked
        is taken too: that is how a search starts from stored trials. Raises ValueError for a value that is not
        finite or not of that many, a row outside the space and a row told before.
        """
        ...

    def has_taken(self, row: int) -> bool:
        """Whether `row` was asked or told."""
        ...

    def likely(self, count: int) -> list[int]:
        """Up to `count` rows, neither asked nor told, that may well be asked next: worth building beforehand.

        The likeliest first; none where nothing is known. It changes nothing of what is asked.
        """
        ...


class SpaceStrategy(ABC):
    """The bookkeeping that all strategies share; a subclass says which unseen row comes next."""

    independent = False

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
        objectives: int = 1,
    ) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise ConfigError(f"search.seed = {seed!r} is not a whole number of at least 0")
        self._space = space
        self._seed = seed
        self._options = dict(options or {})
        self._objectives = objectives
        self._taken = np.zeros(len(space), dtype=bool)
        self._left = len(space)
        self._pending: set[int] = set()

    def ask(self, count: int = 1) -> list[int]:
        if count < 0:
            raise ValueError(f"cannot ask for {count} rows")
        rows = []
        for _ in range(min(count, self._left)):
            row = self._propose()
            self._take(row)
            self._pending.add(row)
            rows.append(row)
        return rows

    def tell(self, row: int, value: Told) -> None:
        values = value if isinstance(value, tuple) else () if value is None else (value,)
        if value is not None and len(values) != self._objectives:
            raise ValueError(f"row {row}: {value} for a search of {self._objectives} values")
        if not all(math.isfinite(each) for each in values):
            raise ValueError(f"row {row}: {value} cannot rank; a failed configuration is told as None")
        if not 0 <= row < len(self._space):
            raise ValueError(f"row {row} is outside the space of {len(self._space)} points")
        asked = row in self._pending
        if not asked:
            if self._taken[row]:
                raise ValueError(f"row {row} was told before")
            self._take(row)
        self._pending.discard(row)
        self._observe(row, tuple(map(float, values)) or None, asked=asked)

    def has_taken(self, row: int) -> bool:
        """Whether `row` was asked or told."""
        return bool(self._taken[row])

    def likely(self, count: int) -> list[int]:
        """Rows that may well be asked next."""
        del count
        return []

    @abstractmethod
    def _propose(self) -> int:
        """A row that is not `_taken`; called only while one is left."""

    def _observe(  # noqa: B027 - optional
        self, row: int, values: tuple[float, ...] | None, *, asked: bool
    ) -> None:
        """Learn from a row, None where it failed; `asked` is false for one that this strategy did not propose."""

    def _take(self, row: int) -> None:
        self._taken[row] = True
        self._left -= 1


@dataclass(frozen=True, slots=True)
class Number:
    """A whole-number option and the least value it can have."""

    default: int
    least: int = 1


@dataclass(frozen=True, slots=True)
class Choice:
    """An option with a few possible values; the first is the default."""

    values: tuple[str, ...]


def checked_options(
    strategy: str, given: Mapping[str, Any], known: Mapping[str, Number | Choice]
) -> dict[str, Any]:
    """Every option of `known` with its given or default value.

    Raises ConfigError for an option that the strategy does not have and for a value it cannot take.
    """
    for name in given:
        if name not in known:
            has = ", ".join(known) or "none"
            raise ConfigError(
                f"search.options.{name}: {strategy} has no such option{did_you_mean(str(name), known)}",
                hint=f"its options: {has}",
            )
    return {
        name: _checked(f"search.options.{name}", given[name], option) if name in given else _default(option)
        for name, option in known.items()
    }


def _default(option: Number | Choice) -> int | str:
    return option.default if isinstance(option, Number) else option.values[0]


def _checked(key: str, value: Any, option: Number | Choice) -> Any:
    if isinstance(option, Choice):
        if value not in option.values:
            raise ConfigError(f"{key} = {value!r} is none of {', '.join(option.values)}")
    elif isinstance(value, bool) or not isinstance(value, int) or value < option.least:
        raise ConfigError(f"{key} = {value!r} is not a whole number of at least {option.least}")
    return value
