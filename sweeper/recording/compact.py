"""A whole recorded space in a small file: gzipped CSV below one line that says what all rows share.

    # {"format":"sweeper-space","version":1,"kernel":"warp_tile","dims":{"M":2048,…},"device":"NVIDIA H200",…}
    bm,bn,…,status,stage,samples_ms,build_s,measure_s,registers,reason
    128,128,…,ok,done,0.4012;0.4009;0.4015,0.41,0.035,128,

Every sample is kept, to six significant digits, which is finer than an event's clock. A library's row has its
name in the first line, under `libraries`.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeper.atomic import atomic_write
from sweeper.expressions import Value
from sweeper.model import Role, Stage, Status
from sweeper.recording.row import Recorded
from sweeper.recording.shared import shared_of, sharing
from sweeper.recording.trials import foreign

__all__ = ["FORMAT", "notes_of", "of_compact", "write_compact"]

FORMAT = "sweeper-space"
_VERSION = 1
_FIGURES = ("status", "stage", "samples_ms", "build_s", "measure_s", "registers", "reason")


def write_compact(path: Path, rows: Sequence[Recorded], notes: Mapping[str, Any] | None = None) -> None:
    """Write the candidates of one kernel at one problem, and the libraries beside them, to `path`.

    `notes` are added to the first line: what a reader should know of the recording. Raises StorageError where
    there is no candidate, where rows differ in kernel, problem or device, and where the file cannot be written.
    """
    candidates = [row for row in rows if row.role is Role.CANDIDATE]
    shared = shared_of(path, candidates)
    libraries = {
        row.kernel: [float(f"{sample:.6g}") for sample in row.samples_ms]
        for row in rows
        if row.role is Role.BASELINE and row.usable_ms is not None
    }
    names = list(candidates[0].params)
    head = {
        "format": FORMAT,
        "version": _VERSION,
        **shared,
        "libraries": libraries,
        **(notes or {}),
    }
    text = io.StringIO(newline="")
    text.write(f"# {json.dumps(head, separators=(',', ':'))}\n")
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*names, *_FIGURES])
    for row in sorted(candidates, key=lambda row: [_order(row.params[name]) for name in names]):
        table.writerow([*(json.dumps(row.params[name]) for name in names), *_figures(row)])
    # Without a time of writing, equal rows give equal bytes.
    atomic_write(path, gzip.compress(text.getvalue().encode(), 9, mtime=0))


def notes_of(path: Path) -> dict[str, Any]:
    """What the first line of the compact recording at `path` says. Raises StorageError where it is none."""
    try:
        head = json.loads(gzip.decompress(path.read_bytes()).decode().partition("\n")[0].removeprefix("#"))
        if head["format"] != FORMAT:
            raise foreign(path, f"its format is {head['format']!r}")
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise foreign(path, str(error)) from error
    return dict(head)


def of_compact(path: Path, text: str) -> Iterator[Recorded]:
    """The rows of a compact recording whose content is `text`. Raises StorageError where it is none."""
    try:
        first, _, rest = text.partition("\n")
        head = json.loads(first.removeprefix("#"))
        if head.get("version") != _VERSION:
            raise foreign(
                path, f"its format has version {head.get('version')}, this program reads {_VERSION}"
            )
        shared = sharing(head)
        lines = csv.DictReader(io.StringIO(rest, newline=""), strict=True)
        names = [name for name in lines.fieldnames or () if name not in _FIGURES]
        for library, samples in head.get("libraries", {}).items():
            yield _library(library, samples, shared)
        for line in lines:
            yield _candidate(line, names, shared)
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise foreign(path, str(error)) from error


def _candidate(line: Mapping[str, str], names: Iterable[str], shared: Mapping[str, Any]) -> Recorded:
    samples = line["samples_ms"]
    return Recorded(
        role=Role.CANDIDATE,
        params={name: json.loads(line[name]) for name in names},
        status=Status(line["status"]),
        stage=Stage(line["stage"]),
        reason=line["reason"],
        samples_ms=tuple(map(float, samples.split(";"))) if samples else (),
        build_s=float(line["build_s"]) if line["build_s"] else None,
        measure_s=float(line["measure_s"]) if line["measure_s"] else None,
        registers=int(line["registers"]) if line["registers"] else None,
        **shared,
    )


def _library(library: str, samples: Sequence[float], shared: Mapping[str, Any]) -> Recorded:
    return Recorded(
        role=Role.BASELINE,
        params={"library": library},
        status=Status.OK,
        stage=Stage.DONE,
        reason="",
        samples_ms=tuple(map(float, samples)),
        **{**shared, "kernel": library},
    )


def _figures(row: Recorded) -> list[str]:
    return [
        row.status.value,
        row.stage.value,
        ";".join(f"{sample:.6g}" for sample in row.samples_ms),
        "" if row.build_s is None else f"{row.build_s:.3g}",
        "" if row.measure_s is None else f"{row.measure_s:.3g}",
        "" if row.registers is None else str(row.registers),
        row.reason[:120],
    ]


def _order(value: Value) -> tuple[bool, Any]:
    return isinstance(value, str), value
