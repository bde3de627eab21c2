"""The best configuration of each study, and all that is known of how good and how sure it is."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweeper.model import Point
from sweeper.report.limits import Ceilings
from sweeper.report.study import Problem, Study, floats
from sweeper.resources.roofline import gflops, percent_of_roofline
from sweeper.table.confirmed import winner_cells
from sweeper.table.standings import Standing, winner_of

__all__ = ["NEAR", "Library", "Winner", "library_of", "winner_of_study"]

NEAR = 0.01
"""Configurations slower by no more than this share are counted as being as good."""


@dataclass(frozen=True, slots=True)
class Library:
    """A problem's fastest library: times in ms, None where it has no interval."""

    name: str
    time_ms: float
    low_ms: float | None
    high_ms: float | None
    note: str


@dataclass(frozen=True, slots=True)
class Winner:
    """The best of one study; `place` is its row. Times are in ms, energies in J, shares in percent.

    Where it was confirmed, its time with the interval, its rate and its shares are those of the confirmation.

    `near` more configurations take at most 1 % more. `confirmed` has the columns of `best.csv` that tell of a
    confirmation, all blank where there was none; `standing` is what they come from. `against` says how it stands to
    the library where nothing was confirmed: faster or slower where the intervals are apart, unsure where they are
    not, empty where one has none.
    """

    study: Study
    place: int
    params: Mapping[str, Any]
    time_ms: float
    low_ms: float | None
    high_ms: float | None
    gflops: float | None
    energy_j: float | None
    percent_of_library: float | None
    percent_of_roofline: float | None
    library: Library | None
    near: int
    confirmed: Mapping[str, Any]
    standing: Standing | None
    against: str

    @property
    def is_confirmed(self) -> bool:
        """Whether it was timed again, in turns with its rivals."""
        return self.standing is not None


def library_of(problem: Problem) -> Library | None:
    """The fastest library beside any study of `problem`."""
    if problem.libraries.empty:
        return None
    row = problem.libraries.iloc[0]
    note = row["note"]
    return Library(
        str(row["kernel"]),
        float(row["time_ms"]),
        _number(row["time_low_ms"]),
        _number(row["time_high_ms"]),
        str(note) if isinstance(note, str) else "",
    )


def winner_of_study(
    problem: Problem, study: Study, library: Library | None, ceilings: Ceilings
) -> Winner | None:
    """The best of `study`, confirmed where it was; None where nothing may rank."""
    order = study.order
    if not order:
        return None
    standing = winner_of(study.finals) if study.finals else None
    place = _place(study, order, standing)
    row = study.rows.iloc[place]
    own = _own_library(problem, study) or library
    cells = winner_cells(standing, own.name if own is not None else "")
    timed, low, high = float(row["time_ms"]), _number(row["time_low_ms"]), _number(row["time_high_ms"])
    # What was timed in turns says more than the samples that chose it.
    confirmed, ratio = cells["confirmed_ms"], cells["vs_library_ratio"]
    ms = timed if confirmed is None else float(confirmed)
    of_library = None if own is None else 100 * own.time_ms / timed
    told = _number(row["percent_of_library"])
    rank = study.rank
    return Winner(
        study=study,
        place=place,
        params=json.loads(row["params"]),
        time_ms=ms,
        low_ms=low if confirmed is None else cells["confirmed_low_ms"],
        high_ms=high if confirmed is None else cells["confirmed_high_ms"],
        gflops=gflops(problem.flops, ms) if problem.flops else _number(row["gflops"]),
        energy_j=_number(row["energy_j"]),
        percent_of_library=100 / ratio if ratio else of_library if told is None else told,
        percent_of_roofline=percent_of_roofline(ms, ceilings.roofline_ms),
        library=own,
        near=int(np.count_nonzero(rank <= rank[place] * (1 + NEAR))) - 1,
        confirmed=cells,
        standing=standing,
        against=_against(low, high, own),
    )


def _own_library(problem: Problem, study: Study) -> Library | None:
    """The library that ran beside this very study, which its percentages are of."""
    rows = problem.libraries[(problem.libraries["study"] == study.name).to_numpy(dtype=bool)]
    if rows.empty:
        return None
    row = rows.iloc[0]
    low, high = _number(row["time_low_ms"]), _number(row["time_high_ms"])
    return Library(str(row["kernel"]), float(row["time_ms"]), low, high, "")


def _place(study: Study, order: list[int], standing: Standing | None) -> int:
    if standing is None:
        return order[0]
    key = standing.confirmed.key[1]
    params = study.rows["params"]
    return next((i for i in order if Point.of(json.loads(params.iloc[i])).key == key), order[0])


def _against(low: float | None, high: float | None, library: Library | None) -> str:
    if library is None or None in (low, high, library.low_ms, library.high_ms):
        return ""
    assert low is not None and high is not None  # noqa: S101, PT018 - for the type checker
    if high < (library.low_ms or 0):
        return "faster"
    return "slower" if low > (library.high_ms or math.inf) else "unsure"


def _number(value: Any) -> float | None:
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def rates(problem: Problem, study: Study) -> Any:
    """GFLOP/s of every row; NaN where it has none."""
    found = floats(study.rows, "gflops")
    if problem.flops:
        with np.errstate(divide="ignore", invalid="ignore"):
            derived = problem.flops / (floats(study.rows, "time_ms") * 1e6)
        found = np.where(np.isfinite(found), found, derived)
    return np.where(np.isfinite(study.rank), found, np.nan)
