"""Times of configurations by problem, from recorded tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sweeper.errors import ConfigError
from sweeper.model import Point, Role
from sweeper.recording import Recorded, read_recorded

__all__ = ["Times", "times_of"]


@dataclass(frozen=True)
class Times:
    """`times_ms` with a row for each of `points` and a column for each of `problems`; NaN where there is none."""

    problems: tuple[str, ...]
    points: tuple[Point, ...]
    times_ms: npt.NDArray[np.float64]


def times_of(paths: Sequence[Path]) -> Times:
    """The configurations in the tables at `paths`, problem by problem; a table may hold several.

    Raises StorageError for a file that is no recorded table, ConfigError where tables are of several kernels.
    """
    by_problem: dict[str, dict[str, float]] = {}
    points: dict[str, Point] = {}
    kernels: dict[str, None] = {}
    for path in paths:
        for row in _candidates(read_recorded(path)):
            if row.kernel:
                kernels[row.kernel] = None
            point = Point.of(row.params)
            points.setdefault(point.key, point)
            time = row.usable_ms
            if time is not None:
                found = by_problem.setdefault(_problem(row, path), {})
                found[point.key] = min(time, found.get(point.key, time))
    if len(kernels) > 1:
        raise ConfigError(f"tables of several kernels: {', '.join(kernels)}", hint="give those of one kernel")
    if not by_problem:
        raise ConfigError("no table has a configuration with a time")
    keys = list(points)
    times = np.array([[times.get(key, np.nan) for times in by_problem.values()] for key in keys])
    return Times(tuple(by_problem), tuple(points[key] for key in keys), times)


def _candidates(rows: Iterable[Recorded]) -> list[Recorded]:
    return [row for row in rows if row.role is Role.CANDIDATE]


def _problem(row: Recorded, path: Path) -> str:
    sizes = "x".join(str(size) for name, size in row.dims.items() if name in ("M", "N", "K"))
    said = " ".join(filter(None, (sizes or path.stem, row.dtype)))
    return f"{said} on {row.device}" if row.device else said
