"""The samples behind the best few of a study: blocks of its confirmation, else what the search timed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweeper.model import Role
from sweeper.report.study import Problem, Study
from sweeper.report.wording import configuration, library, number

__all__ = ["Finalist", "finalists_of"]

_SHOWN = 6
_MOST_SAMPLES = 400


@dataclass(frozen=True, slots=True)
class Finalist:
    """One of them: its times in ms a launch, in the order they were taken. `kind`: candidate, default or library."""

    label: str
    kind: str
    times_ms: tuple[float, ...]
    winner: bool = False


def finalists_of(problem: Problem, study: Study, winner: int | None) -> tuple[str, str, list[Finalist]]:
    """What the times are, what all candidates have in common, and the finalists, best first, libraries last.

    The times are `blocks` of a confirmation or `samples` of the search; empty where there are neither. A candidate
    is called by the parameters that tell it from the others.
    """
    if study.finals and any(one.blocks_ms for one in study.finals):
        rows = _confirmed(study)
        return "blocks", *_told_apart(study, rows)
    found: list[_Row] = []
    order = study.order
    if winner is not None and winner in order:
        order.remove(winner)
        order.insert(0, winner)
    for place in order[:_SHOWN]:
        row = study.rows.iloc[place]
        times = study.samples.get(int(row["trial"]), ())
        if times:
            params = json.loads(row["params"])
            found.append((params, "", "candidate", times, place == winner))
    if not found:
        return "", "", []
    return "samples", *_told_apart(study, [*found, *_libraries(problem, study)])


_Row = tuple[Mapping[str, Any], str, str, tuple[float, ...], bool]


def _told_apart(study: Study, rows: list[_Row]) -> tuple[str, list[Finalist]]:
    given = [params for params, _, kind, _, _ in rows if kind != "library"]
    names = list(dict.fromkeys(name for params in given for name in params))
    same = [name for name in names if len({str(params.get(name)) for params in given}) == 1]
    if len(same) == len(names):
        same = []
    finalists = [
        Finalist(
            label or configuration({n: v for n, v in params.items() if n not in same}) or study.kernel,
            kind,
            times[:_MOST_SAMPLES],
            winner,
        )
        for params, label, kind, times, winner in rows
    ]
    common = " ".join(f"{name}={number(given[0][name])}" for name in same)
    return common, finalists


def _confirmed(study: Study) -> list[_Row]:
    import statistics

    from sweeper.table.standings import standings

    rows = [one for one in standings(study.finals) if one.confirmed.blocks_ms]
    rows.sort(
        key=lambda one: (
            one.confirmed.role is Role.BASELINE,
            not one.is_winner,
            statistics.median(one.confirmed.blocks_ms),
        )
    )
    found: list[_Row] = []
    for one in rows:
        entry = one.confirmed
        if entry.role is Role.BASELINE:
            found.append(({}, library(entry.kernel), "library", entry.blocks_ms, False))
        else:
            kind = "default" if entry.is_default else "candidate"
            found.append((dict(entry.params), "", kind, entry.blocks_ms, one.is_winner))
    return found


def _libraries(problem: Problem, study: Study) -> list[_Row]:
    rows = problem.libraries
    own = rows[(rows["study"] == study.name).to_numpy(dtype=bool)]
    found: list[_Row] = []
    for _, row in (own if len(own) else rows.head(1)).iterrows():
        times = problem.samples.get((str(row["study"]), int(row["trial"])), ())
        if times:
            found.append(({}, library(str(row["kernel"])), "library", times, False))
    return found
