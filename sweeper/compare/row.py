"""The rows of a result as they are compared: what each is of, how it ended, and its times with their errors."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sweeper.compare.ratio import Estimate, of_interval, of_samples
from sweeper.kernel.layout import layout_of
from sweeper.model import Confirmed, Point, Role, Status, TimeSource, canonical_json
from sweeper.results import Results
from sweeper.table.standings import latest, winner_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CACHES", "Row", "best_rows", "rows_of", "time_of"]

CACHES = ("cold", "warm")

_COLUMNS = (
    "study", "trial", "role", "kernel", "dtype", "shape", "dims", "params", "status", "reason", "time_source",
    "backend", "cache", "time_ms", "time_low_ms", "time_high_ms", "effective_samples", "samples", "device",
    *(f"{cache}{end}_ms" for cache in CACHES for end in ("", "_low", "_high")),
)  # fmt: skip
_SOURCES = {
    "cuda": TimeSource.MEASURED,
    "emulator": TimeSource.PREDICTED,
    "replay": TimeSource.REPLAYED,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration, or library, of a result.

    `times` has an estimate for each state of the cache that was measured, none for a row that failed; the state
    is blank where there is none to speak of. `cache` is that of the row's own time. `confirmed`: the times are
    those of its turns after a search. `cells` has every column of the table that a row may be matched by.
    """

    study: str
    trial: int
    role: str
    kernel: str
    dtype: str
    shape: str
    dims: Mapping[str, int]
    params: Mapping[str, Any]
    status: str
    reason: str
    source: str
    device: str
    cache: str = ""
    times: Mapping[str, Estimate] = field(default_factory=dict)
    confirmed: bool = False
    cells: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.status == Status.OK.value

    @property
    def problem(self) -> str:
        """Sizes and layout: equal for equal problems, whatever their shape is called."""
        sizes = canonical_json(dict(self.dims)) if self.dims else self.shape
        return f"{sizes} {layout_of(self.shape)}".strip()

    @property
    def point(self) -> Point:
        return Point.of(dict(self.params))

    @property
    def ms(self) -> float:
        """The row's own time; infinite where it has none."""
        return self.times[self.cache].ms if self.cache in self.times else math.inf

    def value(self, name: str) -> str:
        """What the row is matched by under `name`: equal text for what is the same."""
        if name == "shape":
            return self.problem
        return self.point.key if name == "params" else self.cells.get(name, "")


def rows_of(results: Results, columns: Sequence[str] = ()) -> list[Row]:
    """Every row of `results` in the order of its table, with the cells of `columns` beside the usual ones."""
    table = results.trials
    samples = results.samples()
    kept = [name for name in dict.fromkeys((*_COLUMNS, *columns)) if name in table.columns]
    lists = [_plain(table, name) for name in kept]
    found = []
    for values in zip(*lists, strict=True):
        cells = dict(zip(kept, values, strict=True))
        found.append(_row(cells, samples.get((cells["study"], cells["trial"])), columns))
    return found


def _plain(table: pd.DataFrame, name: str) -> list[Any]:
    column = table[name].astype(object)
    return [None if missing else value for value, missing in zip(column, column.isna(), strict=True)]


def _row(cells: Mapping[str, Any], samples: tuple[float, ...] | None, columns: Sequence[str]) -> Row:
    text = {
        name: str(cells.get(name) or "") for name in ("role", "kernel", "dtype", "shape", "device", "status")
    }
    source = str(cells.get("time_source") or "") or _SOURCES.get(
        str(cells.get("backend") or ""), TimeSource.MEASURED
    )
    ok = cells["status"] == Status.OK.value
    cache = str(cells.get("cache") or "")
    return Row(
        study=str(cells["study"]),
        trial=int(cells["trial"]),
        role=text["role"],
        kernel=text["kernel"],
        dtype=text["dtype"],
        shape=text["shape"],
        device=text["device"],
        status=text["status"],
        dims=json.loads(cells["dims"] or "{}"),
        params=json.loads(cells["params"] or "{}"),
        reason=str(cells["reason"] or ""),
        source=str(source),
        cache=cache,
        times=dict(_times(cells, cache, samples, str(source))) if ok else {},
        cells={**{name: _cell(cells.get(name)) for name in columns}, **text},
    )


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


def _times(
    cells: Mapping[str, Any], cache: str, samples: tuple[float, ...] | None, source: str
) -> Iterator[tuple[str, Estimate]]:
    """The estimates of a valid row by state of the cache, its own first."""
    ms = _number(cells["time_ms"])
    if 0 < ms < math.inf:
        yield cache, _estimate(cells, "time", samples, exact=source == TimeSource.PREDICTED)
    for other in CACHES:
        if other != cache and 0 < _number(cells.get(f"{other}_ms")) < math.inf:
            yield other, _estimate(cells, other, None, exact=False)


def _estimate(
    cells: Mapping[str, Any], name: str, samples: tuple[float, ...] | None, *, exact: bool
) -> Estimate:
    ms = _number(cells[f"{name}_ms"])
    if exact:
        return Estimate(ms, 0.0, math.inf)
    if samples and all(0 < sample < math.inf for sample in samples):
        return of_samples(samples)
    worth = _number(cells.get("effective_samples"))
    worth = _number(cells.get("samples")) if math.isnan(worth) else worth
    low, high = (_number(cells.get(f"{name}_{end}_ms")) for end in ("low", "high"))
    return of_interval(ms, low, high, worth)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def best_rows(results: Results, rows: Sequence[Row], match: Sequence[str]) -> list[Row]:
    """Of each group that `match` (but for params) tells apart, the best row; where none is valid, a failed one.

    That is the one that won its study's confirmation, with the times of that, else the fastest. Libraries count
    by the times of the last confirmation that they took part in.
    """
    names = [name for name in match if name not in ("params", "cache")]
    turns = _turns(results.finals)
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.source, *(row.value(name) for name in names)), []).append(row)
    return [best for group in groups.values() for best in _best(group, turns, apart="cache" in match)]


def _turns(finals: Sequence[Confirmed]) -> dict[str, dict[tuple[str, str], Confirmed]]:
    """By study, the winner of its last confirmation and the libraries beside it, by role and parameters."""
    found: dict[str, dict[tuple[str, str], Confirmed]] = {}
    for study, group in latest(finals).items():
        winner = winner_of(group)
        kept = [one for one in group if one.role is Role.BASELINE and one.blocks_ms and not one.reason]
        kept += [winner.confirmed] if winner is not None else []
        found[study] = {(one.role.value, one.key[1]): one for one in kept}
    return found


def _best(
    group: Sequence[Row], turns: Mapping[str, Mapping[tuple[str, str], Confirmed]], *, apart: bool
) -> list[Row]:
    """The best valid row of each state of the cache where these are `apart`, else of all; or a failed row."""
    by_cache: dict[str, dict[str, list[Row]]] = {}
    for row in group:
        if row.ok and row.times:
            studies = by_cache.setdefault(row.cache if apart else "", {})
            studies.setdefault(row.study, []).append(row)
    return [
        min((_best_of_study(rows, turns.get(study, {})) for study, rows in studies.items()), key=time_of)
        for studies in by_cache.values()
    ] or [group[-1]]


def _best_of_study(rows: Sequence[Row], turns: Mapping[tuple[str, str], Confirmed]) -> Row:
    """The one that was confirmed, with the times of its turns, else the fastest."""
    timed = [(row, turns.get((row.role, row.point.key))) for row in rows]
    confirmed = [_confirmed(row, one) for row, one in timed if one is not None]
    return min(confirmed or rows, key=time_of)


def _confirmed(row: Row, one: Confirmed) -> Row:
    cache = one.cache or row.cache
    return replace(row, cache=cache, times={**row.times, cache: of_samples(one.blocks_ms)}, confirmed=True)


def time_of(row: Row) -> float:
    """What rows are ranked by: their own time in ms."""
    return row.ms
