"""What a mistake costs: the times of a configuration that makes it and of one that does not, and their counters."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.errors import StorageError
from sweeper.lessons.settings import Pitfall
from sweeper.model import TimeSource
from sweeper.table.ranking import rankable

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Counters", "Price", "Side", "prices", "read_counters"]

Counters = Mapping[tuple[str, str, str, str], Mapping[str, str]]
"""Rows of `profile.csv` by kernel, precision class, shape and parameters."""

_STALL = "stall_"


@dataclass(frozen=True, slots=True)
class Side:
    """One configuration of a pair: `time_ms` a launch, None where it has no valid row, and then `reason` why.

    `counter` is the profiled figure, `static` the table's, where there is one.
    """

    time_ms: float | None
    counter: float | None = None
    static: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Price:
    """A pair at one shape in one precision class on one device."""

    pitfall: Pitfall
    shape: str
    dtype: str
    device: str
    time_source: TimeSource
    spoiled: Side
    sound: Side

    @property
    def ratio(self) -> float | None:
        """Spoiled time / sound time."""
        if self.spoiled.time_ms is None or self.sound.time_ms is None:
            return None
        return self.spoiled.time_ms / self.sound.time_ms

    @property
    def counted(self) -> bool:
        """Whether the profiler has the figure of either."""
        return self.spoiled.counter is not None or self.sound.counter is not None


def prices(table: pd.DataFrame, pitfalls: Iterable[Pitfall], counters: Counters) -> list[Price]:
    """The price of each pitfall at every shape, precision class and device of a table of trials.

    Shapes in the order of the table, pitfalls in their own. A pitfall whose kernel the table has not is left out.
    """
    listed = list(pitfalls)
    keys = ["shape", "dtype", "device"]
    found = []
    for (shape, dtype, device), rows in table.groupby(keys, sort=False, dropna=False):
        for pitfall in listed:
            own = rows[(rows["kernel"] == pitfall.kernel) & (rows["role"] == "candidate")]
            if own.empty:
                continue
            known = [str(source) for source in own["time_source"] if source]
            sides = [_side(own, pitfall, params, counters) for params in (pitfall.spoiled, pitfall.sound)]
            found.append(
                Price(
                    pitfall,
                    str(shape),
                    str(dtype),
                    str(device),
                    TimeSource(known[0]) if known else TimeSource.PREDICTED,
                    *sides,
                )
            )
    return found


def _side(rows: pd.DataFrame, pitfall: Pitfall, params: Mapping[str, Any], counters: Counters) -> Side:
    """The latest valid row with `params`, else the reason of the latest that failed."""
    mine = rows[[_has(json.loads(text), params) for text in rows["params"]]]
    if mine.empty:
        return Side(None, reason="not run")
    valid = rankable(mine).sort_values("trial", kind="stable")
    if valid.empty:
        return Side(None, reason=str(mine.iloc[-1]["reason"]))
    row = valid.iloc[-1]
    key = (pitfall.kernel, str(row["dtype"]), str(row["shape"]), _canonical(json.loads(row["params"])))
    return Side(
        time_ms=float(row["time_ms"]),
        counter=_counter(counters.get(key, {}), pitfall.counter),
        static=_static(row, pitfall.static),
    )


def _has(params: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(name in params and params[name] == value for name, value in wanted.items())


def _counter(profile: Mapping[str, str], name: str) -> float | None:
    """The figure called `name` of a row of `profile.csv`; a stall that is not listed is none."""
    if not profile or not name:
        return None
    if name.startswith(_STALL):
        stalls = json.loads(profile.get("stalls") or "{}")
        return float(stalls.get(name.removeprefix(_STALL), 0.0)) if stalls else None
    text = profile.get(name, "")
    return float(text) if text else None


def _static(row: pd.Series, name: str) -> float | None:
    import pandas as pd

    return None if not name or name not in row or pd.isna(row[name]) else float(row[name])


def _canonical(params: Mapping[str, Any]) -> str:
    return json.dumps(dict(sorted(params.items())))


def read_counters(path: Path) -> Counters:
    """The profiles of a results folder's `profile.csv`; none where there is no such file. Raises StorageError."""
    if not path.is_file():
        return {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return {
            (row["kernel"], row["dtype"], row["shape"], _canonical(json.loads(row["params"]))): row
            for row in rows
        }
    except (OSError, UnicodeDecodeError, ValueError, KeyError) as error:
        raise StorageError(
            f"{path} is no table of profiles: {error}",
            hint="move it away; python -m sweeper.profile writes it",
        ) from None
