"""Profiles in a results folder: `profile.json` holds all that was counted, `profile.csv` a row a profile.

What another command profiled before stays; the same row or library of the same problem is replaced. Both
files are written whole or not at all.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeper.atomic import atomic_write, storage_error
from sweeper.errors import StorageError
from sweeper.profile.figures import FIGURES
from sweeper.profile.profile import Profile

__all__ = ["COLUMNS", "CSV_NAME", "JSON_NAME", "record_of", "write_profiles"]

JSON_NAME, CSV_NAME = "profile.json", "profile.csv"
_VERSION = 1
_HEAD = ("kernel", "dtype", "shape", "dims", "params", "study", "trial", "device", "time_ms")
_TAIL = (
    *("compulsory_bytes", "model_dram_bytes", "model_l2_bytes", "model_shared_bytes", "flops"),
    *("registers", "spill_bytes", "occupancy_limited_by", "bound", "stalls", "advice", "note"),
)
COLUMNS: tuple[str, ...] = (*_HEAD, *(figure.name for figure in FIGURES), *_TAIL)
"""The columns of `profile.csv`; blank where a figure could not be had."""

_KEY = ("kernel", "dtype", "shape", "dims", "params", "device")


def record_of(profile: Profile) -> dict[str, Any]:
    """A profile as plain values: the columns of the CSV, `stalls` by reason, ncu's numbers under `metrics`."""
    job, expected = profile.job, profile.expected
    return {
        "kernel": job.kernel,
        "of": job.spec.name,
        "dtype": job.spec.dtype.name,
        "shape": job.problem[2],
        "dims": dict(job.dims),
        "params": job.params,
        "study": job.study,
        "trial": None if job.library else job.number or None,
        "device": profile.device,
        "time_ms": job.time_ms,
        **{figure.name: profile.figures.get(figure.name) for figure in FIGURES},
        "compulsory_bytes": expected.compulsory_bytes,
        "model_dram_bytes": expected.model_dram_bytes,
        "model_l2_bytes": expected.model_l2_bytes,
        "model_shared_bytes": expected.model_shared_bytes,
        "flops": expected.flops,
        "registers": profile.registers,
        "spill_bytes": profile.spill_bytes,
        "occupancy_limited_by": expected.occupancy_limit,
        "bound": profile.bound,
        "stalls": dict(profile.stalls),
        "advice": [advice.text for advice in profile.advice],
        "note": job.note,
        "kernels": list(profile.kernels),
        "metrics": dict(sorted(profile.metrics.items())),
    }


def write_profiles(folder: Path, profiles: Iterable[Profile], *, ncu: str) -> None:
    """Add `profiles` to the folder's files; `ncu` is the profiler's version.

    Raises StorageError where a file cannot be written, or is not of this command.
    """
    path = folder / JSON_NAME
    kept = {_key(record): record for record in _stored(path)}
    for profile in profiles:
        record = {**record_of(profile), "ncu": ncu}
        # Taken out first, so that what is newest stands last.
        kept.pop(_key(record), None)
        kept[_key(record)] = record
    records = list(kept.values())
    text = json.dumps({"version": _VERSION, "profiles": records}, indent=1, ensure_ascii=False)
    atomic_write(path, (text + "\n").encode())
    atomic_write(folder / CSV_NAME, _csv(records))


def _key(record: Mapping[str, Any]) -> str:
    return json.dumps([record.get("of"), *(record.get(name) for name in _KEY)], sort_keys=True)


def _stored(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        records = held["profiles"] if held["version"] == _VERSION else None
    except OSError as error:
        raise storage_error(path, error, doing="read") from error
    except (ValueError, KeyError, TypeError):
        records = None
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise StorageError(f"{path} is not a file of this command", hint="move it away, then run again")
    return records


def _csv(records: Sequence[Mapping[str, Any]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in records:
        writer.writerow([_cell(record.get(name)) for name in COLUMNS])
    return out.getvalue().encode()


def _cell(value: Any) -> str:
    """Shortest text that reads back equal; lists by `; `, mappings as JSON."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "; ".join(map(str, value))
    if isinstance(value, dict):
        return json.dumps(value)
    return repr(value) if isinstance(value, float) else str(value)
