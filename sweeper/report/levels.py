"""The levels of each parameter, and which of them every row has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sweeper.table.columns import PARAM_PREFIX

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Levels", "levels_of"]

Codes = np.ndarray[tuple[int], np.dtype[np.int32]]


@dataclass(frozen=True, slots=True)
class Levels:
    """One parameter: its levels in ascending order, and the place among them of each row's, −1 where it has none."""

    name: str
    values: tuple[Any, ...]
    codes: Codes


def levels_of(rows: pd.DataFrame) -> tuple[Levels, ...]:
    """The parameters that any of `rows` has, in the order of the table's columns."""
    found = []
    for column in rows.columns:
        if not column.startswith(PARAM_PREFIX):
            continue
        given = rows[column].tolist()
        values = [None if _blank(value) else value for value in given]
        levels = sorted({value for value in values if value is not None}, key=_order)
        if levels:
            place = {level: i for i, level in enumerate(levels)}
            codes = np.array([-1 if v is None else place[v] for v in values], dtype=np.int32)
            found.append(Levels(column.removeprefix(PARAM_PREFIX), tuple(levels), codes))
    return tuple(found)


def _blank(value: Any) -> bool:
    return str(value) in ("None", "nan", "<NA>", "")


def _order(value: Any) -> tuple[bool, Any]:
    return isinstance(value, str), value
