"""What `ncu --csv --page raw` prints, as numbers in base units: bytes, seconds, Hz.

One table a profiled process: a line of names that begins with `ID`, a line of units, a line for every
launch. Lines of `==PROF==` and of the program itself may stand before and between. Numbers come with
thousands separators or without, units scaled (`Kbyte`, `msecond`, `us`) or not, as versions and locales
differ. What an architecture does not count is `n/a`, or no column at all: it is absent here, never zero.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sweeper.errors import SetupError

__all__ = ["Launched", "read_raw"]

_PREFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BASES = {"byte": "byte", "second": "second", "s": "second", "hz": "hz", "Hz": "hz"}
_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
_HEAD = "ID"
_NAME = "Kernel Name"


@dataclass(frozen=True, slots=True)
class Launched:
    """One profiled launch: the kernel's name as ncu prints it, numbers by metric, and other cells as text."""

    kernel: str
    metrics: Mapping[str, float]
    texts: Mapping[str, str]


def read_raw(text: str) -> list[Launched]:
    """The launches in `text`, in the order that they were profiled; none where there is no table.

    Raises SetupError for a table whose rows do not fit its head.
    """
    launches: list[Launched] = []
    names: list[str] = []
    units: list[str] = []
    for cells in _rows(text):
        if cells[0] == _HEAD and _NAME in cells:
            names, units = cells, []
        elif not names:
            continue
        elif cells[0] == "" and not units:
            units = cells
        elif cells[0].isdecimal():
            if len(cells) != len(names):
                raise SetupError(
                    f"ncu printed a row of {len(cells)} cells under a head of {len(names)}",
                    hint="run ncu by hand with --csv --page raw to see what it says",
                )
            launches.append(_launched(names, units or [""] * len(names), cells))
    return launches


def _rows(text: str) -> Iterator[list[str]]:
    """The lines that may belong to a table, as cells."""
    kept = [line for line in text.splitlines() if line.startswith('"')]
    for cells in csv.reader(io.StringIO("\n".join(kept), newline="")):
        if cells:
            yield cells


def _launched(names: Sequence[str], units: Sequence[str], cells: Sequence[str]) -> Launched:
    metrics: dict[str, float] = {}
    texts: dict[str, str] = {}
    for name, unit, cell in zip(names, units, cells, strict=True):
        value = _number(cell)
        if value is None:
            texts[name] = cell
        else:
            metrics[name] = value * _factor(unit)
    return Launched(texts.get(_NAME, ""), metrics, texts)


def _number(cell: str) -> float | None:
    """The finite number that `cell` is, else None."""
    text = cell.strip()
    if _GROUPED.fullmatch(text):
        text = text.replace(",", "")
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _factor(unit: str) -> float:
    """What a number in `unit` is multiplied by for bytes, seconds or Hz; 1 for any other unit.

    A rate such as `Kbyte/s` scales by its first part, `Mbyte/msecond` by both.
    """
    top, _, bottom = unit.partition("/")
    return _scale(top) / (_scale(bottom) if bottom else 1.0)


def _scale(unit: str) -> float:
    for base in _BASES:
        prefix = unit.removesuffix(base)
        if prefix != unit and prefix in _PREFIXES:
            return _PREFIXES[prefix]
    return 1.0
