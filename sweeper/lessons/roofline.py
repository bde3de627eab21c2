"""Where the best of each kernel and shape stands under the roofline: what bounds it, and how much of that it reaches.

The roof at an arithmetic intensity of I FLOP/B is the lesser of the peak rate and I times the bandwidth (Williams,
Waterman and Patterson, CACM 52(4), 2009), with compulsory traffic: each input read once, each output written once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sweeper.device import Target, target
from sweeper.errors import ConfigError
from sweeper.model import Confirmed, Point, TimeSource
from sweeper.table.ranking import best_per_shape

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Roof", "Spot", "roofs"]


@dataclass(frozen=True, slots=True)
class Spot:
    """The best of one kernel at one shape: `intensity` in FLOP/B, rates in GFLOP/s and GB/s, `roof_gflops` at
    that intensity, `percent` of the roof reached. `bound` says whether memory or arithmetic is the lower roof."""

    kernel: str
    shape: str
    point: Point
    time_ms: float
    intensity: float
    gflops: float
    gbs: float
    roof_gflops: float
    percent: float
    bound: str


@dataclass(frozen=True, slots=True)
class Roof:
    """The roof of one device in one precision class, and the spots under it by intensity.

    `peak_gflops` and `bandwidth_gbs` are the device's.
    """

    device: str
    dtype: str
    time_source: TimeSource
    peak_gflops: float
    bandwidth_gbs: float
    spots: tuple[Spot, ...]

    @property
    def ridge(self) -> float:
        """The intensity, in FLOP/B, from which on arithmetic is what bounds."""
        return self.peak_gflops / self.bandwidth_gbs


def roofs(
    table: pd.DataFrame, confirmed: Iterable[Confirmed], facts: Sequence[Mapping[str, Any]]
) -> list[Roof]:
    """A roof for each device, precision class and source of time in `table`, whose rows say what they did.

    The device's limits are those of the target that the jobs' `facts` name; a device that no table knows, and a
    kernel whose operations or bytes are not known, have none.
    """
    best = best_per_shape(table, confirmed).merge(
        table[["study", "trial", "role", "flops", "bytes"]].query("role == 'candidate'"),
        on=["study", "trial"],
        validate="one_to_one",
    )
    best = best[best["flops"].notna() & best["bytes"].notna() & (best["time_ms"] > 0)]
    limits = _limits(facts)
    found = []
    for (device, dtype, source), rows in best.groupby(["device", "dtype", "time_source"], sort=False):
        known = limits.get(str(rows["study"].iloc[0]))
        if known is None:
            continue
        peak, bandwidth = known.peak_gflops(str(dtype)), known.bandwidth_gbs
        spots = [_spot(row, peak, bandwidth) for _, row in rows.iterrows()]
        spots.sort(key=lambda spot: (spot.intensity, -spot.gflops))
        found.append(Roof(str(device), str(dtype), TimeSource(str(source)), peak, bandwidth, tuple(spots)))
    return found


def _limits(facts: Sequence[Mapping[str, Any]]) -> dict[str, Target]:
    """The limits of the device that each study ran on, where they are known."""
    found = {}
    for fact in facts:
        try:
            found[str(fact["study"])] = target(str(fact["target"]))
        except (KeyError, ConfigError):
            continue
    return found


def _spot(row: pd.Series, peak: float, bandwidth: float) -> Spot:
    flops, size, time_ms = float(row["flops"]), float(row["bytes"]), float(row["time_ms"])
    intensity, rate = flops / size, flops / time_ms / 1e6
    roof = min(peak, intensity * bandwidth)
    return Spot(
        kernel=str(row["kernel"]),
        shape=str(row["shape"]),
        point=Point.of(json.loads(row["params"])),
        time_ms=time_ms,
        intensity=intensity,
        gflops=rate,
        gbs=size / time_ms / 1e6,
        roof_gflops=roof,
        percent=100 * rate / roof,
        bound="memory" if intensity * bandwidth < peak else "arithmetic",
    )
