"""The tables of a family of shapes on the disk: NAME.csv, NAME-rungs.csv, NAME-searched.csv, NAME.md, NAME.json."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shapes_data import dims_of
from shapes_seeds import Seed

from sweeper.atomic import atomic_write
from sweeper.provenance import write_json

__all__ = [
    "COLUMNS",
    "RUNG_COLUMNS",
    "SEARCHED_COLUMNS",
    "geometric_mean",
    "read_seeds",
    "save",
    "seeds_of",
    "summary",
]

Row = Mapping[str, Any]

_WHERE = ("device", "device_uuid", "note")
_TIMES = (
    "kernel", "params", "timed", "time_ms", "time_low_ms", "time_high_ms", "tflops", "percent_of_peak",
    "percent_of_copy",
)  # fmt: skip
_AGAINST = (
    "cublas_ms",
    "cublaslt_ms",
    "better_library",
    "ratio",
    "ratio_low",
    "ratio_high",
    "verdict",
    "blocks",
)
_WARM = (
    "warm_ms", "cublas_warm_ms", "cublaslt_warm_ms", "warm_ratio", "warm_ratio_low", "warm_ratio_high",
    "warm_verdict",
)  # fmt: skip
COLUMNS = ("shape", "dtype", *_TIMES, *_AGAINST, *_WARM, "evaluations", "seconds", *_WHERE)
RUNG_COLUMNS = ("shape", "dtype", "best", *_TIMES, *_AGAINST, "evaluations", "valid", *_WHERE)


SEARCHED_COLUMNS = ("shape", "dtype", "kernel", "params", "timed", "time_ms", "device", "device_uuid")


def geometric_mean(values: Sequence[float]) -> float:
    """NaN of none."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def summary(rows: Sequence[Row]) -> str:
    """A Markdown table, and the geometric means of the ratios."""
    titles = (
        "M×N×K", "rung", "ms", "TFLOP/s", "% of peak", "% of copy", "cuBLAS, ms", "cuBLASLt, ms",
        "× the better library (95 %)", "verdict", "warm, ms", "× warm",
    )  # fmt: skip
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    lines += [f"| {' | '.join(_cells(row))} |" for row in rows]
    for name, what in (("ratio", "cold"), ("warm_ratio", "warm")):
        known = [(row[name], str(row["shape"])) for row in rows if row.get(name)]
        if known:
            least, where = min(known)
            mean = geometric_mean([ratio for ratio, _ in known])
            means = f"Geometric mean over {len(known)} shapes, L2 {what}: {mean:.3f}"
            lines += ["", f"{means}; the least: {least:.3f}, at {where.replace('x', '×')}."]
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> list[str]:
    interval = ""
    if row.get("ratio"):
        ends = [_number(row, name, ".3f") for name in ("ratio_low", "ratio_high")]
        interval = f"{row['ratio']:.3f}" + (f" ({' to '.join(ends)})" if all(ends) else "")
    return [
        str(row["shape"]).replace("x", "×"),
        row.get("kernel") or "",
        _number(row, "time_ms", ".4g"),
        _number(row, "tflops", ".1f"),
        _number(row, "percent_of_peak", ".1f"),
        _number(row, "percent_of_copy", ".1f"),
        _number(row, "cublas_ms", ".4g"),
        _number(row, "cublaslt_ms", ".4g"),
        interval,
        str(row.get("verdict") or ""),
        _number(row, "warm_ms", ".4g"),
        _number(row, "warm_ratio", ".3f"),
    ]


def _number(row: Row, name: str, form: str) -> str:
    value = row.get(name)
    return "" if value is None else format(value, form)


def save(
    folder: Path, name: str, rows: Sequence[Row], rungs: Sequence[Row], searched: Sequence[Row], record: Row
) -> None:
    """Write all five."""
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / f"{name}.csv", _csv(COLUMNS, rows))
    atomic_write(folder / f"{name}-rungs.csv", _csv(RUNG_COLUMNS, rungs))
    atomic_write(folder / f"{name}-searched.csv", _csv(SEARCHED_COLUMNS, searched))
    atomic_write(folder / f"{name}.md", summary(rows).encode())
    write_json(dict(record), folder / f"{name}.json")


def _csv(columns: Sequence[str], rows: Sequence[Row]) -> bytes:
    text = io.StringIO()
    lines = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    lines.writeheader()
    lines.writerows(rows)
    return text.getvalue().encode()


def seeds_of(rungs: Sequence[Row]) -> list[Seed]:
    """The configurations of rows of NAME-rungs.csv."""
    return [
        Seed(str(row["kernel"]), dims_of(str(row["shape"])), json.loads(row["params"]))
        for row in rungs
        if row.get("params")
    ]


def read_seeds(path: Path) -> list[Seed]:
    """Those of an earlier run's NAME-rungs.csv. Raises OSError, ValueError."""
    with path.open(newline="", encoding="utf-8") as file:
        return seeds_of(list(csv.DictReader(file)))
