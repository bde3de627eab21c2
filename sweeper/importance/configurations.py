"""The distinct configurations of a group of trials, as level indices and values."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sweeper.expressions import Value
from sweeper.model import Role
from sweeper.table.ranking import rankable, ranked_by

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Configurations", "Floats", "Indices", "configurations", "groups"]

Floats = npt.NDArray[np.floating[Any]]
Indices = npt.NDArray[np.integer[Any]]

_GROUP = ["kernel", "dtype", "shape", "device", "objective"]


@dataclass(frozen=True)
class Configurations:
    """What was tried, each configuration once: its best valid row, or else its last failed one.

    `codes`, shape (configurations, parameters), numbers the levels of each parameter, which stand in ascending
    order where `ordered`; `values` are NaN where it failed. The winner, where there is one, is the least value.
    """

    names: tuple[str, ...]
    levels: tuple[tuple[Value, ...], ...]
    ordered: tuple[bool, ...]
    codes: Indices
    values: Floats
    low: Floats
    high: Floats
    study: tuple[str, ...]
    trial: tuple[int, ...]
    status: tuple[str, ...]
    reason: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def valid(self) -> npt.NDArray[np.bool_]:
        return np.isfinite(self.values)

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(map(len, self.levels))

    def params(self, row: int) -> dict[str, Value]:
        """The levels of a configuration by name."""
        return {
            name: levels[code]
            for name, levels, code in zip(self.names, self.levels, self.codes[row].tolist(), strict=True)
        }

    def failures(self) -> dict[str, int]:
        """How many failed with which status, the commonest first."""
        failed = (status for status, valid in zip(self.status, self.valid, strict=True) if not valid)
        return dict(Counter(failed).most_common())


def groups(trials: pd.DataFrame) -> Iterator[tuple[dict[str, str], pd.DataFrame]]:
    """The candidates of each kernel, class, shape, device, objective and source of time, in table order.

    Failed rows have no source: they belong to every one of theirs.
    """
    candidates = trials[(trials["role"] == Role.CANDIDATE.value).to_numpy(dtype=bool, na_value=False)]
    keys = candidates[_GROUP].fillna("")
    for _, members in keys.groupby(_GROUP, sort=False, dropna=False):
        labels = {name: str(members.iloc[0][name]) for name in _GROUP}
        rows = candidates.loc[members.index]
        valid = rankable(rows)
        source = rows["time_source"].fillna("")
        sources = [name for name in source.unique() if name in set(valid["time_source"])]
        for name in sources or [next((one for one in source.tolist() if one), "")]:
            kept = rows[(source == name).to_numpy() | ~rows.index.isin(valid.index)]
            yield {**labels, "time_source": str(name)}, kept


def configurations(rows: pd.DataFrame, known: Mapping[str, Sequence[Value]] | None = None) -> Configurations:
    """The configurations in `rows`, candidates of one group; `known` has levels that were not all tried."""
    rows = rows.reset_index(drop=True)
    values = np.full(len(rows), np.nan)
    valid = rankable(rows).index.to_numpy()
    values[valid] = ranked_by(rows).to_numpy()[valid]
    energy = len(rows) > 0 and bool((rows["objective"] == "energy").fillna(value=False).all())
    kind = ("energy_low_j", "energy_high_j") if energy else ("time_low_ms", "time_high_ms")
    low, high = (rows[name].to_numpy(dtype=float, na_value=np.nan) for name in kind)

    points = [json.loads(text) for text in rows["params"].tolist()]
    names = tuple(dict.fromkeys(name for point in points for name in point))
    levels, ordered, columns = [], [], []
    for name in names:
        own = [point.get(name) for point in points]
        found = _levels(dict.fromkeys([*(known or {}).get(name, ()), *own]))
        place = {level: code for code, level in enumerate(found)}
        levels.append(found)
        ordered.append(not any(isinstance(level, str | bool | None) for level in found))
        columns.append([place[value] for value in own])
    codes = np.array(columns, dtype=np.int64).reshape(len(names), len(rows)).T

    # Valid rows before failed ones, the best first; of failed ones the last says how it ended.
    order = np.lexsort((-np.arange(len(rows)), np.where(np.isnan(values), np.inf, values)))
    order[: len(valid)] = valid
    _, first = np.unique(codes[order], axis=0, return_index=True)
    kept = order[np.sort(first)]
    taken = rows.iloc[kept]
    return Configurations(
        names=names,
        levels=tuple(levels),
        ordered=tuple(ordered),
        codes=codes[kept],
        values=values[kept],
        low=low[kept],
        high=high[kept],
        study=_texts(taken["study"]),
        trial=tuple(map(int, taken["trial"].tolist())),
        status=_texts(taken["status"]),
        reason=_texts(taken["reason"]),
    )


def _levels(distinct: Iterable[Any]) -> tuple[Value, ...]:
    """Numbers in ascending order, else in that of their names."""
    levels = list(distinct)
    names = any(isinstance(level, str | None) for level in levels)
    return tuple(sorted(levels, key=str if names else None))


def _texts(column: pd.Series) -> tuple[str, ...]:
    return tuple(column.fillna("").astype(str).tolist())
