"""Results taken apart: problems, and the studies that answer them, a kernel each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sweeper.lessons.course import rung_number
from sweeper.model import Confirmed, Role, Status
from sweeper.report.levels import Levels, levels_of
from sweeper.report.work import work_of
from sweeper.results import Results
from sweeper.table.ranking import library_rows, ranked_by
from sweeper.table.standings import latest

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Floats", "Problem", "Study", "floats", "problems_of"]

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


def floats(table: pd.DataFrame, name: str) -> Floats:
    """A column as float64; NaN where it is blank."""
    values: Floats = table[name].to_numpy(dtype=float, na_value=np.nan)
    return values


@dataclass(frozen=True, slots=True)
class Study:
    """One kernel at one problem: its `rows` are the candidates in the order they were asked.

    `params` are the parameters that its configurations have. `rank` holds what each row is ranked by, NaN for one
    that may not rank; milliseconds, or joules where the search was after energy. `samples` has raw samples in ms
    by trial number.
    """

    name: str
    kernel: str
    source_file: str
    rows: pd.DataFrame
    params: tuple[Levels, ...]
    rank: Floats
    objective: str
    finals: tuple[Confirmed, ...] = ()
    samples: Mapping[int, tuple[float, ...]] = field(default_factory=dict)

    @property
    def valid(self) -> int:
        """How many of its configurations may rank."""
        return int(np.isfinite(self.rank).sum())

    @property
    def varied(self) -> tuple[Levels, ...]:
        """The parameters of more than one level."""
        return tuple(one for one in self.params if len(one.values) > 1)

    @property
    def order(self) -> list[int]:
        """Places of the rows that may rank, best first."""
        return [int(i) for i in np.argsort(self.rank, kind="stable")[: self.valid]]


@dataclass(frozen=True, slots=True)
class Problem:
    """One shape in one precision class on one device, timed one way, and the studies of it in one result.

    `libraries` are the valid rows of libraries, fastest first. `flops` and `bytes` are None where they are unknown.
    """

    result: Results
    shape: str
    sizes: str
    dtype: str
    device: str
    source: str
    flops: float | None
    bytes: float | None
    studies: tuple[Study, ...]
    libraries: pd.DataFrame
    samples: Mapping[tuple[str, int], tuple[float, ...]]

    @property
    def predicted(self) -> bool:
        """Whether its times are the static model's."""
        return self.source == "predicted"


def problems_of(results: Iterable[Results]) -> list[Problem]:
    """The problems of each result, in the order of its table."""
    return [problem for result in results for problem in _problems(result)]


def _problems(result: Results) -> list[Problem]:
    samples = result.samples()
    sources = {
        run["kernel"]["name"]: str(run["kernel"].get("source", ""))
        for run in result.runs
        if isinstance(run.get("kernel"), dict) and "name" in run["kernel"]
    }
    finals = latest(result.finals)
    groups: dict[tuple[str, ...], list[pd.DataFrame]] = {}
    facts = {}
    for study, table in result.trials.groupby("study", sort=False, dropna=False):
        facts[str(study)] = _facts(table)
        groups.setdefault(facts[str(study)], []).append(table)
    _homeless(groups)
    found = []
    for key, tables in groups.items():
        studies = [
            _study(table, sources, finals, samples)
            for table in tables
            if (table["role"] == Role.CANDIDATE.value).any()
        ]
        studies.sort(key=lambda one: _rung(one.source_file))
        found.append(_problem(result, key, tables, studies, samples))
    return [problem for problem in found if problem.studies]


def _rung(source: str) -> int:
    number = rung_number(source)
    return 10**6 if number is None else number


def _facts(table: pd.DataFrame) -> tuple[str, ...]:
    """What makes a study's problem: shape, sizes, class, device and source of time."""
    sizes = _sizes(_first(table, "dims"))
    return (
        _first(table, "shape") or sizes,
        sizes,
        _first(table, "dtype"),
        _first(table, "device"),
        _first(table, "time_source"),
    )


def _homeless(groups: dict[tuple[str, ...], list[pd.DataFrame]]) -> None:
    """Studies of which nothing ran name no device or source of time: they join the problem of their shape."""
    for key in [key for key in groups if not key[4]]:
        homes = [other for other in groups if other[4] and (other[0], other[2]) == (key[0], key[2])]
        if homes:
            groups[homes[0]] += groups.pop(key)


def _first(table: pd.DataFrame, name: str) -> str:
    """The first value that is not blank."""
    return next((str(value) for value in table[name].dropna().tolist() if value != ""), "")


def _sizes(dims: str) -> str:
    """`4096×4096×4096` as `4096³`, `1000×900×77`, or `N=1048576`, from the JSON of sizes."""
    try:
        sizes: dict[str, Any] = json.loads(dims) if dims else {}
    except ValueError:
        return ""
    if list(sizes) == ["M", "N", "K"]:
        m, n, k = sizes.values()
        return f"{m}³" if m == n == k else f"{m}×{n}×{k}"
    return " ".join(f"{name}={size}" for name, size in sizes.items())


def _study(
    table: pd.DataFrame,
    sources: Mapping[str, str],
    finals: Mapping[str, Sequence[Confirmed]],
    samples: Mapping[tuple[str, int], tuple[float, ...]],
) -> Study:
    rows = table[table["role"] == Role.CANDIDATE.value].sort_values("trial", kind="stable")
    rows = rows.reset_index(drop=True)
    rank = ranked_by(rows).to_numpy(dtype=float)
    good = (rows["status"] == Status.OK.value).to_numpy(dtype=bool) & np.isfinite(rank) & (rank > 0)
    name, kernel = str(rows["study"].iloc[0]), str(rows["kernel"].iloc[0])
    return Study(
        name=name,
        kernel=kernel,
        source_file=sources.get(kernel, ""),
        rows=rows,
        params=levels_of(rows),
        rank=np.where(good, rank, np.nan),
        objective=_first(rows, "objective"),
        finals=tuple(finals.get(name, ())),
        samples={int(n): samples[name, int(n)] for n in rows["trial"] if (name, int(n)) in samples},
    )


def _problem(
    result: Results,
    key: tuple[str, ...],
    tables: Sequence[pd.DataFrame],
    studies: Sequence[Study],
    samples: Mapping[tuple[str, int], tuple[float, ...]],
) -> Problem:
    import pandas as pd

    shape, sizes, dtype, device, source = key
    known = work_of(tables)
    whole = pd.concat(list(tables)) if len(tables) > 1 else tables[0]
    libraries = library_rows(whole)
    if libraries.empty:
        libraries = _beside(result, key)
    return Problem(
        result,
        shape,
        sizes,
        dtype,
        device,
        source,
        *known,
        tuple(studies),
        libraries,
        samples,
    )


def _beside(result: Results, key: tuple[str, ...]) -> pd.DataFrame:
    """A recorded table's libraries are no kernel's study: those of the same sizes, class and device."""
    rows = library_rows(result.trials)
    same = (rows["dtype"] == key[2]) & (rows["device"] == key[3]) & (rows["time_source"] == key[4])
    rows = rows[same.fillna(value=False)]
    kept: pd.DataFrame = rows[np.array([_sizes(str(dims)) == key[1] for dims in rows["dims"]], dtype=bool)]
    return kept
