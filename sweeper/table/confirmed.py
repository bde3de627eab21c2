"""What was timed in turns after a search as a table, and what a table of the best says of the winner."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sweeper.model import Confirmed, Role
from sweeper.statistics import median_interval
from sweeper.table.columns import Column
from sweeper.table.row import without_paths
from sweeper.table.standings import DEFAULT, Comparison, Standing, standings

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CONFIRMED", "OPPONENT", "WINNER_COLUMNS", "confirmed_frame", "versus", "winner_cells"]

CONFIRMED: tuple[Column, ...] = (
    Column("confirmation", "", "equal for all that were timed together", "string"),
    Column("started", "", "when, in UTC", "string"),
    Column("study", "", "the study whose finalists they are", "string"),
    Column("kernel", "", "the kernel's name, or the library's", "string"),
    Column("dtype", "", "precision class", "string"),
    Column("shape", "", "the shape's name, or its sizes", "string"),
    Column("role", "", "candidate, default for the kernel's own default, baseline for a library", "string"),
    Column("winner", "", "true for the one configuration that is named best", "boolean"),
    Column("blocks", "", "blocks, in each of which all were timed once in random order", "Int64"),
    Column("median_ms", "ms", "median of the blocks' times of a launch", "Float64"),
    Column("low_ms", "ms", "lower end of the median's 95 % interval", "Float64"),
    Column("high_ms", "ms", "upper end of the median's 95 % interval", "Float64"),
    Column("ratio", "", "time / the winner's time, from the pairs of a block", "Float64"),
    Column("ratio_low", "", "lower end of the ratio's interval", "Float64"),
    Column("ratio_high", "", "upper end of the ratio's interval", "Float64"),
    Column("verdict", "", "faster, slower, same or unsure, against the winner", "string"),
    Column("reason", "", "why it has no verdict: it failed", "string"),
    Column("note", "", "which algorithm a library took; what disturbed the blocks", "string"),
    Column("cache", "", "cold or warm L2 before each sample", "string"),
    Column("registers", "", "registers a thread", "Int64"),
    Column("shared_bytes", "B", "shared memory a block, static and dynamic", "Int64"),
    Column("threads", "", "threads a block", "Int64"),
    Column("device", "", "the device's name", "string"),
    Column("device_uuid", "", "which device of that name", "string"),
    Column("least_effect", "", "relative difference below which two are the same", "Float64"),
    Column("params", "", "every parameter, as JSON", "string"),
    Column("blocks_ms", "ms", "the times themselves, block by block, as JSON", "string"),
)

OPPONENT: tuple[Column, ...] = (
    Column("", "", "faster, slower, same or unsure, against that opponent", "string"),
    Column("_ratio", "", "time / the opponent's time", "Float64"),
    Column("_low", "", "lower end of the ratio's interval", "Float64"),
    Column("_high", "", "upper end of the ratio's interval", "Float64"),
)
"""The columns against an opponent, after `vs_` and its name: `default`, or a library's."""


WINNER_COLUMNS: Mapping[str, str] = {
    "confirmed_ms": "Float64",
    "confirmed_low_ms": "Float64",
    "confirmed_high_ms": "Float64",
    "confirmed_blocks": "Int64",
    **{f"vs_{name}{c.name}": c.dtype for name in ("default", "library") for c in OPPONENT},
}
"""What a table of the best says of a confirmed one, with pandas types."""


def winner_cells(winner: Standing | None, library: str) -> dict[str, Any]:
    """The cells of `WINNER_COLUMNS`, against the default configuration and against `library`."""
    if winner is None:
        return {name: "" if dtype == "string" else None for name, dtype in WINNER_COLUMNS.items()}
    times, against = winner.confirmed.blocks_ms, winner.against or {}
    low, high = median_interval(times)
    cells: dict[str, Any] = {
        "confirmed_ms": statistics.median(times),
        "confirmed_low_ms": _number(low),
        "confirmed_high_ms": _number(high),
        "confirmed_blocks": len(times),
    }
    for name, other in (("default", DEFAULT), ("library", library)):
        cells |= {f"vs_{name}{end}": value for end, value in versus(against.get(other)).items()}
    return cells


def confirmed_frame(confirmed: Iterable[Confirmed]) -> pd.DataFrame:
    """One row for each of `CONFIRMED`'s columns, and four more for every opponent there is, `vs_NAME…`."""
    import pandas as pd

    groups: dict[str, list[Confirmed]] = {}
    for one in confirmed:
        groups.setdefault(one.confirmation, []).append(one)
    rows = [standing for group in groups.values() for standing in standings(group)]
    names = list(dict.fromkeys(name for one in rows for name in one.against or {}))
    cells = [_cells(standing) for standing in rows]
    data = {c.name: pd.array([row[c.name] for row in cells], dtype=c.dtype) for c in CONFIRMED}  # type: ignore[call-overload]
    for name in names:
        against = [versus((standing.against or {}).get(name)) for standing in rows]
        for column in OPPONENT:
            values = [cell[column.name] for cell in against]
            data[f"vs_{name}{column.name}"] = pd.array(values, dtype=column.dtype)  # type: ignore[call-overload]
    return pd.DataFrame(data)


def versus(comparison: Comparison | None) -> dict[str, Any]:
    """The cells of `OPPONENT`."""
    if comparison is None:
        return {column.name: "" if column.dtype == "string" else None for column in OPPONENT}
    ratio = comparison.ratio
    bounds = {"_ratio": ratio.ratio, "_low": ratio.low, "_high": ratio.high}
    return {"": comparison.verdict.value, **{name: _number(value) for name, value in bounds.items()}}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _cells(standing: Standing) -> dict[str, Any]:
    one, to = standing.confirmed, standing.to_winner
    low, high = median_interval(one.blocks_ms) if one.blocks_ms else (None, None)
    candidate = DEFAULT if one.is_default else one.role.value
    return {
        "confirmation": one.confirmation,
        "started": one.started,
        "study": one.study,
        "kernel": one.kernel,
        "dtype": one.dtype,
        "shape": one.shape,
        "role": candidate,
        "winner": standing.is_winner,
        "blocks": len(one.blocks_ms),
        "median_ms": statistics.median(one.blocks_ms) if one.blocks_ms else None,
        "low_ms": None if low is None else _number(low),
        "high_ms": None if high is None else _number(high),
        **{f"ratio{'' if name == '_ratio' else name}": v for name, v in versus(to).items() if name},
        "verdict": "" if to is None else to.verdict.value,
        "reason": without_paths(one.reason),
        "note": without_paths(one.note),
        "cache": one.cache,
        "registers": one.registers,
        "shared_bytes": one.shared_bytes,
        "threads": one.threads,
        "device": one.device,
        "device_uuid": one.device_uuid,
        "least_effect": one.least_effect,
        "params": json.dumps(dict(one.params), ensure_ascii=False) if one.role is Role.CANDIDATE else "",
        "blocks_ms": json.dumps(one.blocks_ms),
    }
