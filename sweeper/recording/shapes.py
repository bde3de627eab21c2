"""Tables of many shapes, as `bench/bench_shapes.py` writes them: a row a shape, or a shape and kernel.

Columns shape (`4096x4096x64`, `4096x4096x64-nt`), kernel, params, timed and time_ms; those with `cublas_ms` and
`cublaslt_ms` tell the libraries' times of the same blocks. There are medians, no samples.
"""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweeper.errors import ConfigError
from sweeper.kernel.sizes import parse_shape
from sweeper.model import Role, Stage, Status, TimeSource
from sweeper.recording.row import Recorded
from sweeper.recording.shared import sharing
from sweeper.recording.trials import foreign

__all__ = ["SHAPES", "is_shapes", "of_shapes"]

SHAPES = {"shape", "kernel", "params", "timed", "time_ms"}
"""The columns that tell such a table."""

_LIBRARY = "_ms"
_LIBRARIES = ("cublas", "cublaslt")


def is_shapes(header: str) -> bool:
    """Whether a first line is that of such a table."""
    return set(header.strip().split(",")) >= SHAPES


def of_shapes(path: Path, text: str) -> Iterator[Recorded]:
    """The rows of a table of shapes with content `text`; each problem's libraries follow its configurations.

    A library that was timed beside several kernels has the median of those times. Raises StorageError where a
    value is not what its column says.
    """
    beside: dict[tuple[str, str], dict[str, list[float]]] = {}
    problems: dict[tuple[str, str], dict[str, Any]] = {}
    try:
        for line in csv.DictReader(io.StringIO(text, newline=""), strict=True):
            key = line["shape"], line.get("dtype") or "float32"
            problem = problems.setdefault(key, _problem(line, *key))
            for name in _LIBRARIES:
                if line.get(name + _LIBRARY):
                    beside.setdefault(key, {}).setdefault(name, []).append(float(line[name + _LIBRARY]))
            if line["params"] and line["time_ms"]:
                params = dict(json.loads(line["params"]))
                yield _row(problem, line["kernel"], Role.CANDIDATE, params, float(line["time_ms"]))
    except ConfigError as error:
        raise foreign(path, error.message) from None
    except (csv.Error, ValueError, KeyError, TypeError) as error:
        raise foreign(path, str(error)) from error
    for key, libraries in beside.items():
        for name, times in libraries.items():
            yield _row(problems[key], name, Role.BASELINE, {"library": name}, statistics.median(times))


def _problem(line: dict[str, Any], shape: str, dtype: str) -> dict[str, Any]:
    dims, layout = parse_shape(shape)
    shared = sharing(
        {
            "dtype": dtype,
            "time_source": TimeSource.MEASURED.value,
            "method": line["timed"],
            "cache": "cold",
            "device": line.get("device") or "",
            "device_uuid": line.get("device_uuid") or "",
            "dims": dims,
        }
    )
    return {**shared, "layout": layout}


def _row(
    problem: dict[str, Any], kernel: str, role: Role, params: dict[str, Any], time_ms: float
) -> Recorded:
    made = {**problem, "kernel": kernel, "role": role, "params": params, "samples_ms": (time_ms,)}
    return Recorded(status=Status.OK, stage=Stage.DONE, reason="", **made)
