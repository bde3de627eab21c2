"""The configurations that no other one beats in both time and energy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweeper.table.columns import PARAM_PREFIX
from sweeper.table.ranking import rankable

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PARETO", "pareto"]

PARETO: dict[str, str] = {
    "time_percent": "time more than the fastest one's, in % of it",
    "energy_percent": "energy more than the thriftiest one's, in % of it",
    "speed_saves_percent": "energy less than the fastest one's, in % of that",
}
"""Columns that a front has beside those of the trials."""

_GROUP = ["study", "shape", "dtype", "device", "time_source"]
_HEAD = ["study", "kernel", "dtype", "shape", "device"]
_FIGURES = [
    "time_ms", "time_low_ms", "time_high_ms", "energy_j", "energy_low_j", "energy_high_j", "energy_w",
    "gflops", "gflops_per_w",
]  # fmt: skip


def pareto(table: pd.DataFrame) -> pd.DataFrame:
    """The front of each study in `table`, the fastest first; nothing of those whose energy was not measured.

    A configuration is on it if none is at least as good in both and better in one. Of configurations that are
    equal in both the first in the table stands for all. Point estimates decide: intervals are in the columns.
    """
    import numpy as np
    import pandas as pd

    known = rankable(table)
    known = known[(known["energy_j"] > 0).fillna(value=False) & (known["time_ms"] > 0).fillna(value=False)]
    kept: list[object] = []
    added: dict[str, list[float]] = {name: [] for name in PARETO}
    for _, group in known.groupby(_GROUP, sort=False, dropna=False):
        ordered = group.sort_values(["time_ms", "energy_j", "trial"], kind="stable")
        energy = ordered["energy_j"].to_numpy(dtype=float)
        before = np.concatenate([[np.inf], np.minimum.accumulate(energy)[:-1]])
        front = ordered[energy < before]
        times, joules = front["time_ms"].to_numpy(dtype=float), front["energy_j"].to_numpy(dtype=float)
        kept += front.index.tolist()
        added["time_percent"] += (100 * (times / times[0] - 1)).tolist()
        added["energy_percent"] += (100 * (joules / joules[-1] - 1)).tolist()
        added["speed_saves_percent"] += (100 * (1 - joules / joules[0])).tolist()
    params = [name for name in table.columns if name.startswith(PARAM_PREFIX)]
    shown: pd.DataFrame = table.loc[kept, [*_HEAD, *params, *_FIGURES]].copy()
    for name, values in added.items():
        shown[name] = pd.array(values, dtype="Float64")
    for name in ("registers", "shared_bytes", "occupancy", "params", "trial"):
        shown[name] = table.loc[kept, name]
    return shown.reset_index(drop=True)
