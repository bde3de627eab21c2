"""What a table says in short: the best configuration, the best of each shape, and why the rest failed.

Only valid candidates with a finite time above zero may rank.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sweeper.errors import NoValidConfiguration
from sweeper.model import Confirmed, Point, Role, Status
from sweeper.table.columns import PARAM_PREFIX
from sweeper.table.confirmed import WINNER_COLUMNS, winner_cells
from sweeper.table.standings import Standing, winners_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "best",
    "best_per_shape",
    "failure_lines",
    "library_rows",
    "rankable",
    "ranked_by",
    "status_counts",
]

_GROUP = ["kernel", "dtype", "shape", "device", "time_source", "objective"]
_MAX_LINES = 10


def rankable(table: pd.DataFrame) -> pd.DataFrame:
    """The valid candidates, best first: by energy where that is their objective, else by time.

    Equal ones stand in the order of the table.
    """
    import numpy as np

    value = ranked_by(table).to_numpy()
    valid = (table["status"] == Status.OK.value) & (table["role"] == Role.CANDIDATE.value)
    kept: pd.DataFrame = table[valid.to_numpy(dtype=bool) & np.isfinite(value) & (value > 0)]
    return kept.loc[ranked_by(kept).sort_values(kind="stable").index]


def ranked_by(table: pd.DataFrame) -> pd.Series:
    """What each row is ranked by, as floats: joules where energy is its objective, else milliseconds."""
    import numpy as np
    import pandas as pd

    columns = {name: table[name].to_numpy(dtype=float, na_value=np.nan) for name in ("energy_j", "time_ms")}
    by_energy = (table["objective"] == "energy").to_numpy(dtype=bool)
    return pd.Series(np.where(by_energy, columns["energy_j"], columns["time_ms"]), index=table.index)


def best(table: pd.DataFrame) -> pd.Series:
    """The row of the best valid candidate.

    Raises NoValidConfiguration, whose message counts the reasons, where there is none.
    """
    ranked = rankable(table)
    if ranked.empty:
        lines = failure_lines(table) or ["no configuration was tried"]
        raise NoValidConfiguration("no valid configuration:\n  " + "\n  ".join(lines))
    return ranked.iloc[0]


def best_per_shape(table: pd.DataFrame, confirmed: Iterable[Confirmed] = ()) -> pd.DataFrame:
    """The best of every kernel, precision class, shape, device, source of time and objective, in table order.

    That is the fastest, where energy is the objective the thriftiest, or where finalists of its study were timed
    in turns, the one that won. Its columns are the candidate's own, with the library's name and time in ms where
    the table has one, how many configurations were tried and were valid, and what the confirmation says.
    """
    import pandas as pd

    won = winners_of(confirmed)

    candidates = table[table["role"] == Role.CANDIDATE.value]
    groups = rankable(table).groupby(_GROUP, sort=False, dropna=False)
    winners = table.loc[sorted(_confirmed_row(table, row, won) for row in groups.head(1).index)]
    tried = candidates.groupby(["kernel", "dtype", "shape", "device"], sort=False, dropna=False).size()
    valid = groups.size()
    params = [name for name in table.columns if name.startswith(PARAM_PREFIX)]
    shown = winners[[*_HEAD, *params, *_FIGURES]].copy()
    library = [_library(table, row) for _, row in winners.iterrows()]
    shown["library"] = pd.array([name for name, _ in library], dtype="string")
    shown["library_ms"] = pd.array([time for _, time in library], dtype="Float64")
    keys = [tuple(row[name] for name in _GROUP) for _, row in winners.iterrows()]
    shown["trials"] = pd.array([int(tried[key[:4]]) for key in keys], dtype="Int64")
    shown["valid"] = pd.array([int(valid[key]) for key in keys], dtype="Int64")
    told = [
        winner_cells(won.get(row["study"]) if _won(row, won) else None, name)
        for (_, row), (name, _) in zip(winners.iterrows(), library, strict=True)
    ]
    for name, dtype in WINNER_COLUMNS.items():
        shown[name] = pd.array([cells[name] for cells in told], dtype=dtype)  # type: ignore[call-overload]
    return shown.reset_index(drop=True)


_HEAD = ["kernel", "dtype", "shape", "m", "n", "k", "device", "time_source"]
_FIGURES = [
    "time_ms",
    "time_low_ms",
    "time_high_ms",
    "gflops",
    "percent_of_library",
    "percent_of_roofline",
    "objective",
    "energy_j",
    "energy_low_j",
    "energy_high_j",
    "energy_w",
    "gflops_per_w",
    "registers",
    "shared_bytes",
    "occupancy",
    "params",
    "study",
    "trial",
]


def library_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The libraries' valid rows, fastest first."""
    valid = (
        (table["role"] == Role.BASELINE.value)
        & (table["status"] == Status.OK.value)
        & (table["time_ms"] > 0).fillna(value=False)
    )
    kept: pd.DataFrame = table[valid].sort_values("time_ms", kind="stable")
    return kept


def _confirmed_row(table: pd.DataFrame, row: Any, won: Mapping[str, Standing]) -> Any:
    """Where the configuration stands that won in the study of `row`; `row` itself where none did."""
    study = table.loc[row, "study"]
    if study not in won:
        return row
    rows = rankable(table[table["study"] == study])
    return next((place for place, other in rows.iterrows() if _won(other, won)), row)


def _won(row: pd.Series, won: Mapping[str, Standing]) -> bool:
    """Whether it is this configuration that won in its study."""
    winner = won.get(row["study"])
    return winner is not None and Point.of(json.loads(row["params"])).key == winner.confirmed.key[1]


def _library(table: pd.DataFrame, winner: pd.Series) -> tuple[str, float | None]:
    """Name and time of the fastest valid library kernel of the winner's study and source of time."""
    rows = library_rows(table)
    rows = rows[(rows["study"] == winner["study"]) & (rows["time_source"] == winner["time_source"])]
    return ("", None) if rows.empty else (str(rows.iloc[0]["kernel"]), float(rows.iloc[0]["time_ms"]))


def status_counts(table: pd.DataFrame) -> pd.DataFrame:
    """How many candidates ended how: status, stage, count, and one example's reason, error and parameters.

    Reasons that differ in their numbers only count as one. The commonest comes first.
    """
    import pandas as pd

    kinds: dict[tuple[str, str, str], list[int]] = {}
    candidates = table[table["role"] == Role.CANDIDATE.value].reset_index(drop=True)
    for place, (status, stage, reason) in enumerate(
        zip(candidates["status"], candidates["stage"], candidates["reason"], strict=True)
    ):
        kinds.setdefault((status, stage, re.sub(r"\d+", "#", reason)), []).append(place)
    ordered = sorted(kinds.values(), key=len, reverse=True)
    counted = candidates.loc[[places[0] for places in ordered]].copy()
    counted["count"] = pd.array([len(places) for places in ordered], dtype="Int64")
    shown = ["status", "stage", "count", "reason", "exception", "params"]
    return counted[shown].reset_index(drop=True)


def failure_lines(table: pd.DataFrame) -> list[str]:
    """A line for every kind of failure, the commonest first, at most ten."""
    counts = status_counts(table)
    failed = counts[counts["status"] != Status.OK.value]
    lines = [
        f"{r['count']} × {r['status']} at {r['stage']}: {r['reason'] or 'no reason given'}"
        f" (for example {r['params']})"
        for _, r in failed.head(_MAX_LINES).iterrows()
    ]
    rest = len(failed) - len(lines)
    if rest > 0:
        lines.append(f"and {rest} more kinds of failure")
    unranked = int(counts["count"].sum() - failed["count"].sum())
    if unranked and rankable(table).empty:
        lines.append(f"{unranked} × ok without a finite time above zero")
    return lines
