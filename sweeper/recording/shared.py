"""What all rows of one recorded space have in common: kernel, problem, device."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeper.errors import StorageError
from sweeper.recording.row import Recorded

__all__ = ["SHARED", "shared_of", "sharing"]

SHARED = ("kernel", "dtype", "time_source", "method", "cache", "device", "device_uuid", "driver")


def shared_of(path: Path, candidates: Sequence[Recorded]) -> dict[str, Any]:
    """The values of `SHARED` and the sizes; StorageError where there is no row, or rows differ in them."""
    if not candidates:
        raise StorageError(f"{path}: no configuration was recorded")
    for name in ("kernel", "dtype", "dims", "device_uuid"):
        found = (getattr(row, name) for row in candidates)
        values = sorted({json.dumps(dict(v) if isinstance(v, Mapping) else v) for v in found})
        if len(values) > 1:
            raise StorageError(
                f"{path}: rows of {len(values)} values of {name}: {', '.join(values[:3])}",
                hint="a recorded space is one kernel at one problem on one device",
            )
    timed = next((row for row in candidates if row.samples_ms), candidates[0])
    return {**{name: getattr(timed, name) for name in SHARED}, "dims": dict(candidates[0].dims)}


def sharing(given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` as arguments of a row; what it does not say is empty."""
    values: dict[str, Any] = {name: str(given.get(name, "")) for name in SHARED}
    return {**values, "dims": {str(k): int(v) for k, v in (given.get("dims") or {}).items()}}
