"""Results and tables of shapes as configurations that may be exported, with where each came from."""

from __future__ import annotations

import functools
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sweeper.dispatch.entry import Entry
from sweeper.dispatch.read import read_entries, tables_of_shapes
from sweeper.export.chosen import Chosen, Provenance
from sweeper.kernel.layout import layout_of
from sweeper.model import Point, Role, TimeSource
from sweeper.results import Results, read_results
from sweeper.statistics import median_interval
from sweeper.table.ranking import library_rows, rankable
from sweeper.table.standings import Comparison, Standing, latest, standings

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["holders", "read_candidates"]

_USUAL_LAYOUT = "nn"
_COMMIT_DIGITS = 12


def read_candidates(paths: Sequence[Path | str]) -> list[Chosen]:
    """Every right configuration with a time in `paths`: folders, stores, tables, tables of shapes.

    Raises StorageError for what is not there, or no such thing.
    """
    runs, tables = holders(paths)
    found = [one for results in read_results(runs) for one in _of_results(results)]
    for table in tables:
        found += [_of_entry(entry) for entry in read_entries([table])]
    return found


def holders(paths: Sequence[Path | str]) -> tuple[list[Path], list[Path]]:
    """Of `paths` those that hold results, and the tables of shapes in them; a folder may hold both."""
    runs: list[Path] = []
    tables: list[Path] = []
    for path in map(Path, paths):
        shapes = tables_of_shapes(path)
        tables += shapes
        if not shapes or (path.is_dir() and _has_runs(path)):
            runs.append(path)
    return runs, tables


def _has_runs(folder: Path) -> bool:
    places = [folder, *(inner for inner in folder.iterdir() if inner.is_dir())]
    return any((place / name).is_file() for place in places for name in ("study.db", "trials.csv"))


# --- A table of shapes --------------------------------------------------------------------------------


def _of_entry(entry: Entry) -> Chosen:
    return Chosen(
        kernel=entry.kernel,
        dtype=entry.dtype,
        layout=entry.layout,
        device=entry.device,
        dims=tuple(entry.dims.items()),
        params=dict(entry.params),
        time_ms=entry.time_ms,
        timed="confirmed" if entry.confirmed else "measured",
        time_low_ms=entry.time_low_ms,
        time_high_ms=entry.time_high_ms,
        ratio=entry.ratio,
        library=entry.library,
        verdict=entry.verdict,
        provenance=Provenance(device=entry.device, table=Path(entry.table).name),
    )


# --- A run --------------------------------------------------------------------------------------------


def _of_results(results: Results) -> Iterator[Chosen]:
    ranked = rankable(results.trials)
    won = {
        (study, _point(standing.confirmed.params)): standing
        for study, group in latest(results.finals).items()
        for standing in standings(group)
        if standing.confirmed.role is Role.CANDIDATE
    }
    settled = {study for (study, _), standing in won.items() if standing.is_winner}
    libraries = _libraries(results.trials)
    records: dict[str, Mapping[str, Any]] = {str(run.get("study", "")): run for run in results.runs}
    seen: set[tuple[str, str]] = set()
    for row in _records(ranked):
        study, source = row["study"], row["time_source"] or TimeSource.MEASURED.value
        params = _mapping(row["params"])
        standing = won.get((study, _point(params))) if source == TimeSource.MEASURED.value else None
        standing = standing if standing is not None and standing.to_winner is not None else None
        if study in settled and source == TimeSource.MEASURED.value:
            named = standing is not None and standing.is_winner
        else:
            named = (study, source) not in seen
        # What was asked twice is one configuration; the faster of its rows came first.
        named = named and (study, source) not in seen
        seen |= {(study, source)} if named else set()
        yield Chosen(
            kernel=row["kernel"],
            dtype=row["dtype"],
            layout=_layout(row),
            device=row["device"],
            dims=tuple((str(name), int(size)) for name, size in _mapping(row["dims"]).items()),
            params=params,
            cache=row["cache"],
            shape=row["shape"],
            provenance=_provenance(row, records.get(study, {}), results.name),
            named=named,
            **(_confirmed(standing) if standing else _searched(row, source, libraries.get((study, source)))),
        )


def _confirmed(standing: Standing) -> dict[str, Any]:
    times = standing.confirmed.blocks_ms
    low, high = median_interval(times)
    against: list[tuple[str, Comparison]] = [
        (name, one) for name, one in (standing.against or {}).items() if name != "default"
    ]
    library, to = max(against, key=lambda pair: pair[1].ratio.ratio, default=("", None))
    return {
        "time_ms": statistics.median(times),
        "timed": "confirmed",
        "time_low_ms": _finite(low),
        "time_high_ms": _finite(high),
        "ratio": 1 / to.ratio.ratio if to is not None else None,
        "library": library,
        "verdict": to.verdict.value if to is not None else "",
    }


def _searched(row: Mapping[str, Any], source: str, library: tuple[str, float] | None) -> dict[str, Any]:
    time_ms = float(row["time_ms"])
    return {
        "time_ms": time_ms,
        "timed": source,
        "time_low_ms": _finite(row["time_low_ms"]),
        "time_high_ms": _finite(row["time_high_ms"]),
        "ratio": library[1] / time_ms if library else None,
        "library": library[0] if library else "",
    }


def _libraries(table: pd.DataFrame) -> dict[tuple[str, str], tuple[str, float]]:
    """The fastest library of each study and source of time."""
    found: dict[tuple[str, str], tuple[str, float]] = {}
    for row in _records(library_rows(table)):
        found.setdefault((row["study"], row["time_source"]), (row["kernel"], float(row["time_ms"])))
    return found


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return cast(list[dict[str, Any]], table.to_dict("records"))


def _provenance(row: Mapping[str, Any], run: Mapping[str, Any], table: str) -> Provenance:
    git = run.get("git") or {}
    commit = str(git.get("commit") or "")[:_COMMIT_DIGITS]
    return Provenance(
        device=row["device"],
        driver=row["driver"],
        compiler=row["compiler"] or _text(run.get("compiler")),
        kernel_digest=row["kernel_digest"],
        measured=str(run.get("ended") or "")[:10],
        commit=f"{commit} with changes" if commit and git.get("dirty") else commit,
        table=table,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _layout(row: Mapping[str, Any]) -> str:
    named = layout_of(row["shape"])
    return named or (_USUAL_LAYOUT if {"M", "N", "K"} <= set(_mapping(row["dims"])) else "")


@functools.lru_cache(maxsize=4096)
def _mapping(text: str) -> dict[str, Any]:
    found = json.loads(text) if text else {}
    return dict(found)


def _point(params: Mapping[str, Any]) -> str:
    return Point.of(dict(params)).key


def _finite(value: Any) -> float | None:
    """None for pandas' NA and for NaN."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if number == number else None  # noqa: PLR0124 - NaN alone differs from itself
