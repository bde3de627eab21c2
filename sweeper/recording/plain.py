"""A plain CSV of anybody's: a column a parameter, a column `time_ms`, empty where the configuration failed.

At least one of the columns `compile_ms`, `benchmark_ms` and `verification_ms` says what an evaluation cost: they
tell such a table from any other CSV with times.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from sweeper.expressions import Value
from sweeper.model import Role, Stage, Status
from sweeper.recording.row import Recorded
from sweeper.recording.shared import sharing
from sweeper.recording.trials import foreign

__all__ = ["is_plain", "of_plain"]

_COSTS = ("compile_ms", "benchmark_ms", "verification_ms")


def is_plain(header: str) -> bool:
    """Whether a first line is that of such a table."""
    names = set(header.strip().split(","))
    return "time_ms" in names and not names.isdisjoint(_COSTS)


def of_plain(path: Path, text: str) -> Iterator[Recorded]:
    """The rows of a plain CSV with content `text`. Raises StorageError where a value is no number."""
    shared = sharing({})
    try:
        lines = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        names = [name for name in lines.fieldnames or () if name not in ("time_ms", *_COSTS)]
        for line in lines:
            time = float(line["time_ms"]) if line["time_ms"] else None
            costs = {name: float(line[name]) for name in _COSTS if line.get(name)}
            yield Recorded(
                role=Role.CANDIDATE,
                params={name: _value(line[name]) for name in names},
                status=Status.LAUNCH_ERROR if time is None else Status.OK,
                stage=Stage.LAUNCH if time is None else Stage.DONE,
                reason="recorded without a time" if time is None else "",
                samples_ms=() if time is None else (time,),
                build_s=costs["compile_ms"] / 1e3 if "compile_ms" in costs else None,
                measure_s=sum(costs.get(name, 0.0) for name in _COSTS[1:]) / 1e3 if costs else None,
                **shared,
            )
    except (csv.Error, ValueError, KeyError, TypeError) as error:
        raise foreign(path, str(error)) from error


def _value(text: str) -> Value:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text
