"""What configurations took in earlier runs, by kernel, precision class, sizes and GPU."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sweeper.model import Role, TimeSource
from sweeper.plan.cost import CHECKED_LAUNCHES, measuring_s
from sweeper.results import Results

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Rate", "nearest", "rates_of"]


@dataclass(frozen=True, slots=True)
class Rate:
    """Means over the configurations of one study that a device measured.

    `measure_s` are seconds of the device a configuration, `launch_s` those of a launch, weighted by how often each
    was launched, `samples` how many were timed; `build_s` is None where every build was in the cache. `source` names
    the results, `rows` says how many configurations they are. `beside` is by how much, in the middle, they took
    longer than their launches alone explain.
    """

    source: str
    kernel: str
    dtype: str
    dims: Mapping[str, int]
    device: str
    rows: int
    measure_s: float
    launch_s: float
    samples: float
    build_s: float | None
    beside: float = 1.0


def rates_of(results: Results) -> list[Rate]:
    """The rates in `results`, a study each. Rows that no device measured, and those without seconds, say nothing."""
    table = results.trials
    if table.empty or "measure_s" not in table:
        return []
    usable = table[
        (table["role"] == Role.CANDIDATE.value)
        & (table["time_source"] != TimeSource.PREDICTED.value)
        & table["measure_s"].notna()
        & table["time_ms"].notna()
        & (table["samples"] > 0)
    ]
    found = []
    for (_, kernel, dtype, dims, device), rows in usable.groupby(
        ["study", "kernel", "dtype", "dims", "device"], sort=False, dropna=False
    ):
        rate = _rate(results.name, str(kernel), str(dtype), _sizes(dims), str(device or ""), rows)
        found += [rate] if rate is not None else []
    return found


def _rate(
    source: str, kernel: str, dtype: str, dims: Mapping[str, int], device: str, rows: pd.DataFrame
) -> Rate | None:
    samples = rows["samples"].astype(float)
    launches = samples + CHECKED_LAUNCHES
    launch_s = float((launches * rows["time_ms"].astype(float)).sum() / launches.sum()) / 1e3
    built = rows["build_s"].dropna().astype(float)
    built = built[built > 0]
    if not dims or launch_s <= 0:
        return None
    return Rate(
        source,
        kernel,
        dtype,
        dims,
        device,
        len(rows),
        float(rows["measure_s"].astype(float).mean()),
        launch_s,
        float(samples.mean()),
        float(built.mean()) if len(built) else None,
        _beside(rows),
    )


def _beside(rows: pd.DataFrame) -> float:
    """The median, so that the first configuration of a process, which has to warm the device up, says nothing."""
    columns = rows[["measure_s", "time_ms", "samples"]].itertuples(index=False)
    return statistics.median(
        float(s) / measuring_s(float(ms) / 1e3, float(count), 0) for s, ms, count in columns
    )


def _sizes(text: Any) -> dict[str, int]:
    try:
        node = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return {str(name): int(size) for name, size in node.items()} if isinstance(node, dict) else {}


def nearest(rates: Iterable[Rate], kernel: str, dtype: str, dims: Mapping[str, int]) -> list[Rate]:
    """The rates of this kernel and class with the same sizes' names, those of the nearest problem first, then those
    of more rows."""
    usable = [r for r in rates if r.kernel == kernel and r.dtype == dtype and set(r.dims) == set(dims)]
    return sorted(usable, key=lambda rate: (_apart(dims, rate.dims), -rate.rows))


def _apart(dims: Mapping[str, int], others: Mapping[str, int]) -> float:
    """Sum over the sizes of how many times one is doubled to reach the other."""
    return sum(abs(math.log2(max(size, 1) / max(others[name], 1))) for name, size in dims.items())
