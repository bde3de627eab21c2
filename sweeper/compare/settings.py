"""What a comparison is asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweeper.compare.ratio import BETWEEN_RUNS
from sweeper.errors import ConfigError, did_you_mean
from sweeper.table import COLUMNS

__all__ = ["MATCH", "Filter", "Settings", "checked_match", "fraction", "kept_on", "parse_only"]

MATCH = ("kernel", "dtype", "shape", "params", "role", "cache")
"""What rows are matched by; whatever else differs is what is compared."""

_KNOWN = tuple(column.name for column in COLUMNS)
_SIDES = ("a", "b")


@dataclass(frozen=True, slots=True)
class Filter:
    """Only rows whose `column` is `value` count, on one `side` or, where that is blank, on both."""

    side: str
    column: str
    value: str


@dataclass(frozen=True, slots=True)
class Settings:
    """`least_effect` is the relative difference below which two times are the same, `between_runs` a run's own
    relative standard deviation. With `best` only the best of each kernel and shape are compared. `threshold` is
    how much slower, relative, a row may be (None: any).
    """

    match: tuple[str, ...] = MATCH
    only: tuple[Filter, ...] = ()
    best: bool = False
    least_effect: float = 0.01
    between_runs: float = BETWEEN_RUNS
    threshold: float | None = None


def fraction(text: str, option: str, *, zero: bool = False) -> float:
    """`2%` or `0.02` as 0.02. Raises ConfigError for anything that is not above 0 (or 0, with `zero`) and below 1."""
    found = re.fullmatch(r"([0-9]*\.?[0-9]+(?:[eE][+-]?\d+)?)\s*(%?)", text.strip())
    value = float(found[1]) / (100 if found[2] else 1) if found else -1.0
    if not (0 < value < 1 or (zero and value == 0)):
        raise ConfigError(f"{option}: {text!r} is not a share below 1", hint=f"write {option} 2% or 0.02")
    return value


def checked_match(names: Sequence[str]) -> tuple[str, ...]:
    """`names` as columns that rows can be matched by, the role always among them.

    Raises ConfigError for one that no table has.
    """
    for name in names:
        if name not in _KNOWN:
            raise ConfigError(
                f"--match: tables have no column {name!r}{did_you_mean(name, _KNOWN)}",
                hint=f"by default rows are matched by {','.join(MATCH)}",
            )
    if not names:
        raise ConfigError("--match names no column", hint=f"write --match {','.join(MATCH)}")
    return tuple(dict.fromkeys((*names, "role")))


def parse_only(text: str) -> Filter:
    """`device=NVIDIA H200`, or `a.device=…` for one side. Raises ConfigError."""
    name, equals, value = text.partition("=")
    side, dot, column = name.partition(".")
    if not dot:
        side, column = "", name
    if not equals or (dot and side not in _SIDES):
        raise ConfigError(f"--only: {text!r} is not COLUMN=VALUE", hint="write --only kernel=tiled")
    if column not in _KNOWN:
        raise ConfigError(f"--only: tables have no column {column!r}{did_you_mean(column, _KNOWN)}")
    return Filter(side, column, value)


def kept_on(side: str, only: Sequence[Filter]) -> Mapping[str, set[str]]:
    """The values that each filtered column may have on `side`."""
    found: dict[str, set[str]] = {}
    for one in only:
        if one.side in ("", side):
            found.setdefault(one.column, set()).add(one.value)
    return found
