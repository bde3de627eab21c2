"""What does not agree: one configuration measured on another GPU, driver or source, or to another result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from sweeper.compare.ratio import BETWEEN_RUNS
from sweeper.kernel.layout import layout_of
from sweeper.model import Status, Trial
from sweeper.record import decode
from sweeper.statistics import series_interval
from sweeper.store.schema import trials
from sweeper.table.row import time_ms

__all__ = ["KINDS", "Conflict", "across_contexts", "within_context"]

Row = Mapping[str, Any]

KINDS = {
    "device": "on another kind of GPU",
    "gpu": "on another GPU of that kind",
    "driver": "with another driver",
    "source": "of another source of the kernel",
    "compiler": "with another compiler",
    "time_source": "measured here, predicted or replayed there",
    "status": "right here and wrong or refused there, under the same conditions",
    "times": "under the same conditions, in times that lie apart",
}
"""What a conflict may be about, each as the end of: measured twice, …"""

# These say something of the configuration; others may be the machine's.
_TELLING = {
    status.value for status in (Status.OK, Status.WRONG_RESULT, Status.BUILD_ERROR, Status.LAUNCH_ERROR)
}
# Medians of two runs differ by this much where nothing is amiss: three standard deviations of a difference.
_SCATTER = 3 * math.sqrt(2) * BETWEEN_RUNS
_LEAST_SAMPLES = 6


@dataclass(frozen=True, slots=True)
class Conflict:
    """Rows of one configuration that do not agree; `kinds` says in what (keys of `KINDS`)."""

    kinds: tuple[str, ...]
    trials: tuple[Trial, ...]

    def record(self) -> dict[str, Any]:
        """As plain JSON values."""
        first = self.trials[0]
        return {
            "kinds": list(self.kinds),
            "kernel": first.kernel,
            "dtype": first.dtype,
            "shape": first.shape,
            "params": dict(first.params),
            "role": first.role.value,
            "rows": [
                {
                    "study": t.study,
                    "status": t.status.value,
                    "time_ms": time_ms(t) if t.status is Status.OK else None,
                    "time_source": t.time_source.value if t.time_source else None,
                    "samples": len(t.timing.samples_ms) if t.timing else 0,
                    "device": t.device,
                    "device_uuid": t.device_uuid,
                    "driver": t.driver,
                    "kernel_digest": t.kernel_digest,
                    "compiler": t.build.compiler if t.build else "",
                }
                for t in self.trials
            ],
        }


def within_context(kept: Row, other: Row) -> Conflict | None:
    """What two rows of one key and of equal conditions disagree about; None where they agree."""
    if kept["device_uuid"] != other["device_uuid"]:
        kind = "gpu"
    elif kept["status"] != other["status"]:
        kind = "status" if {kept["status"], other["status"]} <= _TELLING else ""
    elif kept["status"] == Status.OK.value and _apart(decode(kept), decode(other)):
        kind = "times"
    else:
        kind = ""
    return Conflict((kind,), (decode(kept), decode(other))) if kind else None


def across_contexts(connection: sa.Connection) -> Iterator[Conflict]:
    """Configurations that a store has under conditions that differ in GPU, driver, source or compiler."""
    t = trials.c
    problem = (t.kernel, t.dtype, t.dims, t.params_key, t.role)
    several = (
        sa.select(*problem).group_by(*problem).having(sa.func.count(sa.distinct(t.context)) > 1).subquery()
    )
    same = sa.and_(*(column == several.c[column.name] for column in problem))
    query = sa.select(trials).join(several, same).order_by(*problem, t.context, t.study, t.id)
    rows = connection.execute(query).mappings()
    for _, group in groupby(rows, key=lambda row: tuple(row[column.name] for column in problem)):
        by_layout: dict[str, list[Trial]] = {}
        for row in group:
            if row["status"] in _TELLING:
                by_layout.setdefault(layout_of(str(row["shape"])), []).append(decode(dict(row)))
        for own in by_layout.values():
            kinds = _differing(own)
            if kinds:
                yield Conflict(kinds, tuple(own))


def _differing(rows: Sequence[Trial]) -> tuple[str, ...]:
    told: dict[str, set[Any]] = {
        "device": {t.device for t in rows},
        "gpu": {t.device_uuid for t in rows},
        "driver": {t.driver for t in rows},
        "source": {t.kernel_digest for t in rows},
        "compiler": {t.build.compiler for t in rows if t.build is not None},
        "time_source": {t.time_source for t in rows if t.time_source is not None},
    }
    if len(told["device"]) > 1:
        # It is another one, and has another driver, as a matter of course.
        told["gpu"] = told["driver"] = set()
    return tuple(kind for kind, values in told.items() if len(values) > 1)


def _apart(a: Trial, b: Trial) -> bool:
    """Whether two times lie further apart than their intervals and what runs scatter allow."""
    one, other = _interval(a), _interval(b)
    if one is None or other is None:
        return False
    first, second = sorted((one, other))
    return second[0] > first[1] * (1 + (_SCATTER if a.timing is not None else 0))


def _interval(trial: Trial) -> tuple[float, float] | None:
    """The median's 95 % interval in ms; of too few samples their range, of an exact time itself."""
    if trial.timing is None:
        value = time_ms(trial)
        return None if value is None else (value, value)
    samples = trial.timing.samples_ms
    if not samples or not all(map(math.isfinite, samples)):
        return None
    if len(samples) >= _LEAST_SAMPLES:
        found = series_interval(samples)
        if not (math.isnan(found.low) or math.isnan(found.high)):
            return found.low, found.high
    return min(samples), max(samples)
