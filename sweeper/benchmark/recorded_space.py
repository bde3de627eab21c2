"""A recorded table as a space to search: its points, and what each of them came to and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sweeper.errors import StorageError
from sweeper.expressions import Value
from sweeper.model import ParamSpec, Point, Role
from sweeper.recording import Recorded, read_recorded
from sweeper.space import Space, space_of_points

__all__ = ["RecordedSpace", "load_space", "space_from"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RecordedSpace:
    """The points of one recorded table.

    `times_ms` by row of `space`, NaN for a configuration that failed; `seconds` what evaluating it cost, compiling
    included, or NaN where the table does not tell. `kernel`, `dtype`, `dims` and `device` are empty where it does
    not tell either.
    """

    name: str
    space: Space
    times_ms: Floats
    seconds: Floats
    kernel: str = ""
    dtype: str = ""
    dims: Mapping[str, int] | None = None
    device: str = ""

    @property
    def best_ms(self) -> float:
        """The time of the fastest configuration."""
        return float(np.nanmin(self.times_ms))

    def times_of(self, points: Sequence[Point]) -> Floats:
        """Times of points of another space; NaN for those that were not recorded here, or failed."""
        rows = [self.space.row(point) for point in points]
        return np.array([np.nan if row is None else self.times_ms[row] for row in rows])


def load_space(path: Path) -> RecordedSpace:
    """The space recorded at `path`. Raises StorageError where it is no recorded table, or none has a time."""
    name = path.name
    for ending in (".gz", ".csv", ".json", ".db"):
        name = name.removesuffix(ending)
    return space_from(name, read_recorded(path))


def space_from(name: str, rows: Sequence[Recorded]) -> RecordedSpace:
    """The space of the candidates among `rows`. Raises StorageError where there is none with a time."""
    found = {Point.of(row.params).key: row for row in rows if row.role is Role.CANDIDATE}
    candidates = list(found.values())
    if not any(row.usable_ms is not None for row in candidates):
        raise StorageError(
            f"{name} holds no configuration with a time", hint="give a table of a finished run"
        )
    names = list(candidates[0].params)
    levels = {n: sorted({row.params[n] for row in candidates}, key=_order) for n in names}
    params = [ParamSpec(n, tuple(levels[n]), levels[n][0]) for n in names]
    points = [Point(tuple((n, row.params[n]) for n in names)) for row in candidates]
    space = space_of_points(params, points)
    times, seconds = np.full(len(space), np.nan), np.full(len(space), np.nan)
    for point, row in zip(points, candidates, strict=True):
        place = space.row(point)
        if place is None:
            raise AssertionError("every recorded point is one of the space")
        times[place] = np.nan if row.usable_ms is None else row.usable_ms
        if row.build_s is not None or row.measure_s is not None:
            seconds[place] = (row.build_s or 0.0) + (row.measure_s or 0.0)
    first = candidates[0]
    return RecordedSpace(
        name, space, times, seconds, first.kernel, first.dtype, dict(first.dims), first.device
    )


def _order(value: Value) -> tuple[bool, Value]:
    return isinstance(value, str), value
