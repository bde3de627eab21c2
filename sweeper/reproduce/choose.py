"""From results to what is to be measured again: rows, each with the record of the run that made it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweeper.compare import MATCH, Filter
from sweeper.compare.ratio import of_samples
from sweeper.compare.row import Row, best_rows, rows_of, time_of
from sweeper.compare.settings import kept_on
from sweeper.errors import ConfigError, NoValidConfiguration
from sweeper.kernel.layout import chosen_layout, layout_of, shape_suffix
from sweeper.model import Confirmed, Role
from sweeper.results import Results
from sweeper.table.standings import latest

__all__ = ["ALL", "BEST", "Published", "choose", "seed_of"]

BEST, ALL = "best", "all"
_COLUMNS = (
    "seed", "kernel_digest", "compiler", "driver", "device_uuid", "context", "max_error", "note",
)  # fmt: skip
_GROUP = (*MATCH, "device")


@dataclass(frozen=True, slots=True)
class Published:
    """The rows of one study to be measured again, and `run`, the record of the run that made them.

    `source` names the results. A row's times are those of its turns after the search, where it took part in them:
    those that chose it say too much in its favour.
    """

    source: str
    rows: tuple[Row, ...]
    run: Mapping[str, Any]

    @property
    def first(self) -> Row:
        """One of its configurations, or a library where there is none."""
        return next((row for row in self.rows if row.role == Role.CANDIDATE.value), self.rows[0])


def choose(
    results: Iterable[Results], rows: str | int = BEST, only: Sequence[Filter] = ()
) -> tuple[list[Published], int]:
    """The valid rows of `results` that `rows` asks for, by study, and how many rows were left out as not valid.

    `rows` is `best`, the best of every kernel, precision class, shape and device and the libraries beside them, a
    number of best ones, or `all`. Raises NoValidConfiguration where there is none, ConfigError where a row has
    no record of its run.
    """
    found: list[Published] = []
    failed = 0
    for one in results:
        every = _kept(rows_of(one, (*_COLUMNS, *(f.column for f in only))), only)
        valid = [row for row in every if row.ok and row.times]
        failed += len(every) - len(valid)
        chosen = [_in_turns(row, one.finals) for row in _chosen(one, valid, rows)]
        by_study: dict[str, list[Row]] = {}
        for row in chosen:
            by_study.setdefault(row.study, []).append(row)
        found += [Published(one.name, tuple(some), _run_of(one, some[0])) for some in by_study.values()]
    if not found:
        raise NoValidConfiguration("these results have no valid row to reproduce")
    return found, failed


def _kept(rows: Sequence[Row], only: Sequence[Filter]) -> list[Row]:
    wanted = kept_on("a", only)
    return [row for row in rows if all(row.cells.get(name, "") in values for name, values in wanted.items())]


def _chosen(results: Results, valid: Sequence[Row], rows: str | int) -> list[Row]:
    if rows == ALL:
        return list({(row.study, row.role, row.point.key): row for row in valid}.values())
    best = best_rows(results, valid, _GROUP)
    if rows == BEST:
        return best
    libraries = [row for row in best if row.role == Role.BASELINE.value]
    names = [name for name in _GROUP if name != "params"]
    groups: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in valid:
        if row.role == Role.CANDIDATE.value:
            key = (row.source, *(row.value(name) for name in names))
            groups.setdefault(key, {})[row.point.key] = row
    return [
        row for group in groups.values() for row in sorted(group.values(), key=time_of)[: int(rows)]
    ] + libraries


def _in_turns(row: Row, finals: Sequence[Confirmed]) -> Row:
    """The row with the times of its turns, where it took part in its study's last ones."""
    if row.confirmed:
        return row
    for one in latest(finals).get(row.study, ()):
        if one.key == (Role(row.role), row.point.key) and one.blocks_ms and not one.reason:
            cache = one.cache or row.cache
            return replace(row, cache=cache, times={cache: of_samples(one.blocks_ms)}, confirmed=True)
    return row


def _run_of(results: Results, row: Row) -> Mapping[str, Any]:
    """The record of the latest run that made the row's study, else of one that described its kernel."""
    described = [run for run in results.runs if _describes(run, row)]
    described.sort(key=lambda run: run.get("study") == row.study)
    if not described:
        has = "no run.json" if not results.runs else f"no run that describes {row.kernel} ({row.dtype})"
        raise ConfigError(
            f"{results.name} cannot be reproduced: it has {has}, so it is not known how its rows were made",
            hint="give the results folder as the run left it, with study.db, or trials.csv and run.json",
        )
    return described[-1]


def _describes(run: Mapping[str, Any], row: Row) -> bool:
    config = run.get("config")
    node = config.get("kernel") if isinstance(config, Mapping) else None
    if not isinstance(node, Mapping):
        return False
    if run.get("study") == row.study:
        return True
    same = row.role == Role.BASELINE.value or node.get("name") == row.kernel
    layout = shape_suffix(chosen_layout(node)) == shape_suffix(layout_of(row.shape))
    return same and layout and str(node.get("dtype", "float32")) == row.dtype and run.get("dims") == row.dims


def seed_of(row: Row, run: Mapping[str, Any]) -> int:
    """The seed of the row's input arrays."""
    text = row.cells.get("seed", "")
    value = float(text) if text else float(run.get("config", {}).get("seed", 42))
    return 42 if math.isnan(value) else int(value)
