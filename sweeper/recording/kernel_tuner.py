"""Kernel Tuner's cache files, which its simulation mode searches and which the BAT benchmark publishes.

One JSON object with the parameters' levels and an entry a configuration under its values joined by commas. A
failed one has the name of an error for its time. Times are milliseconds. The file may lack its last brackets, as
Kernel Tuner leaves it while it runs, and a last line that was cut off is left out.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeper.atomic import atomic_write
from sweeper.expressions import Value
from sweeper.model import Role, Stage, Status
from sweeper.recording.row import Recorded
from sweeper.recording.shared import shared_of, sharing
from sweeper.recording.trials import foreign

__all__ = ["is_cache", "mended", "of_cache", "write_cache"]

_ERRORS = {
    "InvalidConfig": (Status.INFEASIBLE, Stage.SPACE),
    "CompilationFailedConfig": (Status.BUILD_ERROR, Stage.BUILD),
    "RuntimeFailedConfig": (Status.LAUNCH_ERROR, Stage.LAUNCH),
    "ErrorConfig": (Status.LAUNCH_ERROR, Stage.LAUNCH),
}
_SPENT = ("benchmark_time", "verification_time")


def is_cache(content: Any) -> bool:
    """Whether JSON `content` looks like a cache of Kernel Tuner's."""
    return isinstance(content, Mapping) and isinstance(content.get("cache"), Mapping)


def mended(path: Path, text: str) -> Any:
    """The JSON content of a cache that was not closed. Raises StorageError where it cannot be read at all."""
    body = text.rstrip()
    while body:
        body = body.rstrip().rstrip(",")
        for end in ("", "}}", "}"):
            try:
                content = json.loads(body + end)
            except ValueError:
                continue
            return content
        # Without the last line, which was cut off.
        warnings.warn(f"{path}: the last line was cut off and is left out", stacklevel=2)
        body = body[: body.rfind("\n")] if "\n" in body else ""
        if not body.endswith(","):
            break
    raise foreign(path, "it is no JSON")


def of_cache(path: Path, content: Mapping[str, Any]) -> Iterator[Recorded]:
    """The rows of a cache with JSON `content`. Raises StorageError where it is none."""
    try:
        names = list(content["tune_params_keys"])
        known = {"kernel": content.get("kernel_name", ""), "device": content.get("device_name", "")}
        shared = sharing({**known, **(content.get("sweeper") or {})})
        for entry in content["cache"].values():
            yield _row(entry, names, shared)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise foreign(path, f"{type(error).__name__}: {error}") from error


def _row(entry: Mapping[str, Any], names: Sequence[str], shared: Mapping[str, Any]) -> Recorded:
    error = next((v for v in (entry.get("__error__"), entry.get("time")) if isinstance(v, str)), None)
    if error is None and not isinstance(entry.get("time"), int | float):
        error = "ErrorConfig"
    status, stage = (Status.OK, Stage.DONE) if error is None else _ERRORS.get(error, _ERRORS["ErrorConfig"])
    samples = tuple(map(float, entry.get("times") or ())) if error is None else ()
    if error is None and not samples:
        samples = (float(entry["time"]),)
    spent = [float(entry[name]) for name in _SPENT if isinstance(entry.get(name), int | float)]
    build = entry.get("compile_time")
    return Recorded(
        role=Role.CANDIDATE,
        params={name: entry[name] for name in names},
        status=status,
        stage=stage,
        reason="" if error is None else f"recorded as {error}",
        samples_ms=samples,
        build_s=float(build) / 1e3 if isinstance(build, int | float) else None,
        measure_s=sum(spent) / 1e3 if spent else None,
        **shared,
    )


def write_cache(path: Path, rows: Sequence[Recorded]) -> None:
    """Write the candidates among `rows` as a cache that Kernel Tuner's simulation mode takes. Raises StorageError.

    `verification_time` is 0: our seconds of verifying and timing are one figure.
    """
    candidates = [row for row in rows if row.role is Role.CANDIDATE]
    shared = shared_of(path, candidates)
    names = list(candidates[0].params)
    levels: dict[str, list[Value]] = {
        name: sorted({row.params[name] for row in candidates}, key=lambda v: (isinstance(v, str), v))
        for name in names
    }
    content = {
        "device_name": shared["device"] or "unknown",
        "kernel_name": shared["kernel"] or path.stem,
        "problem_size": [1],
        "tune_params_keys": names,
        "tune_params": levels,
        "objective": "time",
        "sweeper": shared,
        "cache": {",".join(str(row.params[n]) for n in names): _entry(row) for row in candidates},
    }
    # Kernel Tuner knows a closed file by its last characters.
    text = json.dumps(content, separators=(",", ":"))
    atomic_write(path, text.encode())


def _entry(row: Recorded) -> dict[str, Any]:
    time: Any = row.usable_ms
    if time is None:
        by_status = {status: name for name, (status, _) in reversed(_ERRORS.items())}
        time = by_status.get(row.status, "RuntimeFailedConfig")
    return {
        **row.params,
        "time": time,
        "times": list(row.samples_ms) if row.usable_ms is not None else [],
        "compile_time": 1e3 * (row.build_s or 0.0),
        "verification_time": 0,
        "benchmark_time": 1e3 * (row.measure_s or 0.0),
        "strategy_time": 0,
        "framework_time": 0,
        "timestamp": "",
    }
