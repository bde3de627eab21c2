"""The community's T4 results format (odgaard/TuningSchema 1.0.0), in which tuners exchange what they measured.

A file has one result a configuration: its parameters, the times of its parts in milliseconds, whether it was valid,
and named measurements. What was tuned, and on which device, stands in `metadata` where we wrote the file; other
tuners' files need not say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeper.atomic import atomic_write
from sweeper.model import Role, Stage, Status
from sweeper.recording.row import Recorded
from sweeper.recording.shared import shared_of, sharing
from sweeper.recording.trials import foreign

__all__ = ["is_t4", "of_t4", "write_t4"]

_VERSION = "1.0.0"
_STATUSES = {
    "correct": (Status.OK, Stage.DONE),
    "constraints": (Status.INFEASIBLE, Stage.SPACE),
    "compile": (Status.BUILD_ERROR, Stage.BUILD),
    "runtime": (Status.LAUNCH_ERROR, Stage.LAUNCH),
    "timeout": (Status.TIMEOUT, Stage.LAUNCH),
    "correctness": (Status.WRONG_RESULT, Stage.VERIFY),
}
_INVALIDITY = {
    Status.OK: "correct",
    Status.INFEASIBLE: "constraints",
    Status.BUILD_ERROR: "compile",
    Status.BUILD_TIMEOUT: "compile",
    Status.TIMEOUT: "timeout",
    Status.WRONG_RESULT: "correctness",
}
# What people call the time of a launch, in the order in which it is looked for.
_TIMES = ("time", "time_ms", "runtime", "Kernel Time", "GPU time")
_TO_MS = {"s": 1e3, "seconds": 1e3, "us": 1e-3, "microseconds": 1e-3, "ns": 1e-6, "nanoseconds": 1e-6}


def is_t4(content: Any) -> bool:
    """Whether JSON `content` looks like a T4 file."""
    return isinstance(content, Mapping) and isinstance(content.get("results"), list)


def of_t4(path: Path, content: Mapping[str, Any]) -> Iterator[Recorded]:
    """The rows of a T4 file with JSON `content`. Raises StorageError where it is none."""
    try:
        metadata = content.get("metadata") or {}
        shared = sharing(metadata.get("sweeper") or {})
        scale = _TO_MS.get(str(metadata.get("timeunit", "milliseconds")), 1.0)
        for result in content["results"]:
            yield _row(result, shared, scale)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise foreign(path, f"{type(error).__name__}: {error}") from error


def _row(result: Mapping[str, Any], shared: Mapping[str, Any], scale: float) -> Recorded:
    times = result.get("times") or {}
    status, stage = _STATUSES[result.get("invalidity", "correct")]
    if status is Status.OK and not result.get("correctness", 1):
        status, stage = Status.WRONG_RESULT, Stage.VERIFY
    samples = tuple(float(sample) * scale for sample in times.get("runtimes") or ())
    measured = _time(result.get("measurements") or ())
    if status is Status.OK and not samples and measured is not None:
        samples = (measured,)
    if status is Status.OK and not samples:
        status, stage = Status.UNSTABLE, Stage.MEASURE
    build = times.get("compilation_time", times.get("compilation"))
    parts = [times.get(name) for name in ("benchmark", "validation")]
    return Recorded(
        role=Role.CANDIDATE,
        params=dict(result["configuration"]),
        status=status,
        stage=stage,
        reason="" if status is Status.OK else f"recorded as {result.get('invalidity', 'incorrect')}",
        samples_ms=samples if all(sample > 0 for sample in samples) else (),
        build_s=None if build is None else float(build) * scale / 1e3,
        measure_s=None if parts == [None, None] else sum(float(part or 0) for part in parts) * scale / 1e3,
        **shared,
    )


def _time(measurements: Iterable[Mapping[str, Any]]) -> float | None:
    named = {str(one.get("name")): one for one in measurements}
    for name in _TIMES:
        one = named.get(name)
        if one is not None and isinstance(one.get("value"), int | float):
            return float(one["value"]) * _TO_MS.get(str(one.get("unit", "ms")), 1.0)
    return None


def write_t4(path: Path, rows: Sequence[Recorded]) -> None:
    """Write the candidates among `rows` as a T4 file; its metadata says what they share. Raises StorageError."""
    candidates = [row for row in rows if row.role is Role.CANDIDATE]
    content = {
        "schema_version": _VERSION,
        "metadata": {"timeunit": "milliseconds", "sweeper": shared_of(path, candidates)},
        "results": [_result(row) for row in candidates],
    }
    atomic_write(path, (json.dumps(content, separators=(",", ":")) + "\n").encode())


def _result(row: Recorded) -> dict[str, Any]:
    time = row.usable_ms
    return {
        "configuration": dict(row.params),
        "times": {
            "compilation_time": 1e3 * (row.build_s or 0.0),
            "benchmark": 1e3 * (row.measure_s or 0.0),
            "framework": 0,
            "search_algorithm": 0,
            "validation": 0,
            "runtimes": list(row.samples_ms) if time is not None else [],
        },
        "invalidity": _INVALIDITY.get(row.status, "runtime"),
        "correctness": 0 if row.status is Status.WRONG_RESULT else 1,
        "measurements": [] if time is None else [{"name": "time", "value": time, "unit": "ms"}],
        "objectives": ["time"],
    }
