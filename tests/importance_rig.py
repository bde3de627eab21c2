"""Tables of trials whose times are a known function of their parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from sweeper.model import Confirmed, Stage, Status, TimeSource, Timing, Trial
from sweeper.table import frame

Point = Mapping[str, Any]


def grid(**levels: Iterable[Any]) -> list[dict[str, Any]]:
    """Every combination of the levels."""
    return [dict(zip(levels, values, strict=True)) for values in product(*levels.values())]


def trial(number: int, params: Point, ms: float | None, **changes: Any) -> Trial:
    """One of time `ms` (all samples alike but the least and the largest), or one that failed."""
    samples = () if ms is None else (0.99 * ms, *(ms,) * 8, 1.01 * ms)
    fields: dict[str, Any] = {
        "study": "k-float32-s-0",
        "context": "0",
        "kernel": "k",
        "dtype": "float32",
        "shape": "s",
        "dims": {"N": 64},
        "status": Status.OK if samples else Status.LAUNCH_ERROR,
        "stage": Stage.DONE if samples else Stage.LAUNCH,
        "reason": "" if samples else "too many resources requested",
        "timing": Timing(samples, "events", "cold") if samples else None,
        "time_source": TimeSource.MEASURED,
        "device": "a device",
    }
    fields.update(changes)
    return Trial(number=number, params=dict(params), **fields)


def table(points: Iterable[Point], time: Callable[[Point], float | None], **changes: Any) -> pd.DataFrame:
    """A study of `points`, each taking `time` in ms; None fails."""
    return frame([trial(number, point, time(point), **changes) for number, point in enumerate(points, 1)])


def logarithmic(effect: Callable[[Point], float]) -> Callable[[Point], float]:
    """The time whose logarithm is `effect`."""
    return lambda point: math.exp(effect(point))


def final(params: Point, ms: float) -> Confirmed:
    """One of a confirmation, ten blocks of nearly the same time."""
    blocks = tuple(ms * (1 + 1e-4 * (place % 3)) for place in range(10))
    return Confirmed("c", "2026-01-01", "k-float32-s-0", "k", "float32", "s", dict(params), blocks_ms=blocks,
                     wanted=10)  # fmt: skip


ROOT = Path(__file__).parents[1]
SPACES = ROOT / "results" / "h200" / "spaces"
