"""A course of kernels: each rung's best configuration, and what it gains over the rung before.

Rungs stand in the order of the number that their source file's name begins with (`04_register_tile.cu` is
rung 4), those without a number after them. A kernel that could not run is no rung and has its reason.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sweeper.model import Confirmed, Point, Role, Status, TimeSource
from sweeper.table.ranking import best_per_shape

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Absent", "Course", "Rung", "courses", "rung_number"]

_NUMBER = re.compile(r"(\d+)_")


@dataclass(frozen=True, slots=True)
class Rung:
    """One kernel's best: `time_ms` a launch in ms, shares in percent, `gain` × over the rung before.

    None where it is not known: a library that was not measured, a problem without a FLOP count, the first rung.
    """

    number: int | None
    kernel: str
    point: Point
    time_ms: float
    gflops: float | None
    percent_of_library: float | None
    percent_of_peak: float | None
    gain: float | None


@dataclass(frozen=True, slots=True)
class Absent:
    """A kernel of the course that has no valid configuration here, and why."""

    number: int | None
    kernel: str
    reason: str


@dataclass(frozen=True, slots=True)
class Course:
    """The rungs at one shape in one precision class on one device.

    `library` is the fastest library that was measured beside any of them, with its time in ms and GFLOP/s;
    empty and None where there is none. `sizes` reads `M=4096 N=4096 K=4096`.
    """

    shape: str
    sizes: str
    dtype: str
    device: str
    time_source: TimeSource
    rungs: tuple[Rung, ...]
    absent: tuple[Absent, ...]
    library: str = ""
    library_ms: float | None = None
    library_gflops: float | None = None


def rung_number(source: str) -> int | None:
    """4 of `04_register_tile.cu`; None of a name without a number."""
    match = _NUMBER.match(source)
    return int(match[1]) if match else None


def courses(table: pd.DataFrame, confirmed: Iterable[Confirmed], sources: Mapping[str, str]) -> list[Course]:
    """The courses of a table of trials, in its order; `sources` has the kernels' source files by name."""
    best = best_per_shape(table, confirmed)
    keys = ["dtype", "shape", "device", "time_source"]
    found = []
    for (dtype, shape, device, source), rows in best.groupby(keys, sort=False, dropna=False):
        same = table[(table["dtype"] == dtype) & (table["shape"] == shape) & (table["device"] == device)]
        library = _library(same)
        ordered = sorted((row for _, row in rows.iterrows()), key=lambda row: _order(row["kernel"], sources))
        found.append(
            Course(
                shape=str(shape),
                sizes=_sizes(rows.iloc[0]),
                dtype=str(dtype),
                device=str(device),
                time_source=TimeSource(str(source)),
                rungs=_rungs(ordered, sources, library[1]),
                absent=_absent(same, {str(row["kernel"]) for row in ordered}, sources),
                library=library[0],
                library_ms=library[1],
                library_gflops=library[2],
            )
        )
    return found


def _order(kernel: str, sources: Mapping[str, str]) -> tuple[float, int]:
    """By number, and where that is the same or there is none, in the order that the kernels were run in."""
    number = rung_number(sources.get(kernel, ""))
    place = list(sources).index(kernel) if kernel in sources else len(sources)
    return (math.inf if number is None else number, place)


def _rungs(
    rows: Iterable[pd.Series], sources: Mapping[str, str], library_ms: float | None
) -> tuple[Rung, ...]:
    rungs: list[Rung] = []
    for row in rows:
        time_ms = float(row["time_ms"])
        rungs.append(
            Rung(
                number=rung_number(sources.get(str(row["kernel"]), "")),
                kernel=str(row["kernel"]),
                point=Point.of(json.loads(row["params"])),
                time_ms=time_ms,
                gflops=_number(row["gflops"]),
                percent_of_library=None if library_ms is None else 100 * library_ms / time_ms,
                percent_of_peak=_number(row["percent_of_roofline"]),
                gain=rungs[-1].time_ms / time_ms if rungs else None,
            )
        )
    return tuple(rungs)


def _library(table: pd.DataFrame) -> tuple[str, float | None, float | None]:
    """Name, time in ms and GFLOP/s of the fastest valid library row."""
    valid = (table["role"] == Role.BASELINE.value) & (table["status"] == Status.OK.value)
    rows = table[valid & (table["time_ms"] > 0).fillna(value=False)].sort_values("time_ms", kind="stable")
    if rows.empty:
        return "", None, None
    fastest = rows.iloc[0]
    return str(fastest["kernel"]), float(fastest["time_ms"]), _number(fastest["gflops"])


def _absent(table: pd.DataFrame, present: set[str], sources: Mapping[str, str]) -> tuple[Absent, ...]:
    """The kernels with candidates and none that is valid, each with the reason that most of them have."""
    rows = table[(table["role"] == Role.CANDIDATE.value) & ~table["kernel"].isin(present)]
    names = sorted(dict.fromkeys(rows["kernel"]), key=lambda kernel: _order(kernel, sources))
    return tuple(
        Absent(rung_number(sources.get(name, "")), name, str(reasons.mode().iloc[0]))
        for name in names
        for reasons in [rows.loc[rows["kernel"] == name, "reason"]]
    )


def _sizes(row: pd.Series) -> str:
    import pandas as pd

    return " ".join(f"{name.upper()}={row[name]}" for name in ("m", "n", "k") if not pd.isna(row[name]))


def _number(value: Any) -> float | None:
    import pandas as pd

    return None if pd.isna(value) else float(value)
