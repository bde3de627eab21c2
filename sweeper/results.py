"""Results as the commands that look at them read them: folders, stores, exported tables and recorded spaces.

Nothing is written, and nothing is repaired: a store is opened read-only, as it is.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.errors import StorageError
from sweeper.kernel.sizes import shape_text
from sweeper.model import Build, Confirmed, Role, Status, TimeSource, Timing, Trial
from sweeper.recording import Recorded, read_recorded
from sweeper.recording.work import Work, work_of
from sweeper.store.stored import read_store
from sweeper.table import frame, read_csv
from sweeper.table.confirmed import confirmed_frame
from sweeper.table.standings import DEFAULT

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Results", "read_results"]

_TABLE, _STORE, _RUNS, _FINALS = "trials.csv", "study.db", "run.json", "confirmed.csv"
_SQLITE = b"SQLite format 3\x00"


@dataclass(frozen=True, slots=True)
class Results:
    """One command's results, or one recorded table.

    `path` is what was named (of a folder of folders, the one within), `name` the last part of it. `trials` has the
    columns of `trials.csv`, `finals` what was timed in turns after a search, `runs` the records of `run.json`.
    """

    path: Path
    name: str
    trials: pd.DataFrame
    finals: tuple[Confirmed, ...] = ()
    runs: tuple[dict[str, Any], ...] = ()
    timings: Mapping[tuple[str, int], tuple[float, ...]] = field(default_factory=dict)

    @property
    def confirmed(self) -> pd.DataFrame:
        """`finals` with the columns of `confirmed.csv`."""
        return confirmed_frame(self.finals)

    def samples(self) -> dict[tuple[str, int], tuple[float, ...]]:
        """Raw samples in ms by study and trial; none of what was read from a CSV, which has none."""
        return dict(self.timings)


def read_results(paths: Sequence[Path | str]) -> list[Results]:
    """What each of `paths` holds: a results folder, a folder of such folders, or a table in any format we read.

    A folder's store is taken before its exported table, which has no samples. Raises StorageError for what is not
    there, cannot be read or is no such thing.
    """
    found: list[Results] = []
    for path in map(Path, paths):
        if not path.exists():
            raise StorageError(f"{path}: no such file or folder", hint="give a results folder or a table")
        found += list(_of_folder(path)) if path.is_dir() else [_of_file(path)]
    return found


def _of_folder(folder: Path) -> Iterator[Results]:
    try:
        inner = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    except OSError as error:
        raise StorageError(f"{folder} cannot be read: {error.strerror or error}") from None
    places = [place for place in inner if (place / _STORE).is_file() or (place / _TABLE).is_file()]
    if not places:
        raise StorageError(
            f"{folder} holds no results: neither it nor a folder in it has {_STORE} or {_TABLE}",
            hint="give the folder that the last line of a run names",
        )
    # A folder's own results are what it is named for; those within belong to its jobs.
    for place in places[:1] if places[0] == folder else places:
        store = place / _STORE
        yield _of_store(place, store) if store.is_file() else _of_export(place, place / _TABLE)


def _of_file(path: Path) -> Results:
    try:
        with path.open("rb") as file:
            start = file.read(len(_SQLITE))
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from None
    if start == _SQLITE:
        return _of_store(path, path)
    if _is_export(path):
        return _of_export(path, path)
    rows = read_recorded(path)
    trials = list(_trials(path, rows))
    return Results(path, path.name.partition(".")[0], frame(trials), timings=_timings(trials))


def _is_export(path: Path) -> bool:
    """Whether it is a `trials.csv` by its header, whatever its name."""
    with path.open("rb") as file:
        header = file.readline(65536)
    return header.startswith(b"study,trial,")


def _name(path: Path) -> str:
    return path.name if path.name not in (_STORE, _TABLE) else path.absolute().parent.name


def _of_export(path: Path, table: Path) -> Results:
    finals, runs = table.with_name(_FINALS), table.with_name(_RUNS)
    return Results(
        path,
        _name(path.absolute()),
        read_csv(table),
        tuple(_finals_of_csv(finals)) if finals.is_file() else (),
        _runs_of_json(runs) if runs.is_file() else (),
    )


def _of_store(path: Path, store: Path) -> Results:
    stored = read_store(store)
    return Results(
        path,
        _name(path.absolute()),
        frame(stored.trials),
        tuple(stored.confirmed),
        tuple(stored.runs),
        _timings(stored.trials),
    )


def _timings(trials: Iterable[Trial]) -> dict[tuple[str, int], tuple[float, ...]]:
    return {(t.study, t.number): t.timing.samples_ms for t in trials if t.timing is not None}


def _runs_of_json(path: Path) -> tuple[dict[str, Any], ...]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return tuple(dict(record) for record in content["runs"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path} is no provenance of a run: {error}") from error


def _finals_of_csv(path: Path) -> Iterator[Confirmed]:
    import pandas as pd

    try:
        rows = pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")
        for row in rows:
            role = row["role"]
            yield Confirmed(
                confirmation=row["confirmation"],
                started=row["started"],
                study=row["study"],
                kernel=row["kernel"],
                dtype=row["dtype"],
                shape=row["shape"],
                params=json.loads(row["params"]) if row["params"] else {},
                role=Role.BASELINE if role == Role.BASELINE.value else Role.CANDIDATE,
                is_default=role == DEFAULT,
                blocks_ms=tuple(json.loads(row["blocks_ms"])),
                reason=row["reason"],
                note=row["note"],
                cache=row["cache"],
                registers=_integer(row["registers"]),
                shared_bytes=_integer(row["shared_bytes"]),
                threads=_integer(row["threads"]),
                device=row["device"],
                device_uuid=row["device_uuid"],
                wanted=int(row["blocks"]),
                least_effect=float(row["least_effect"]),
            )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path} is no table of finalists: {error}") from error


def _integer(text: str) -> int | None:
    return int(float(text)) if text else None


def _trials(path: Path, rows: Sequence[Recorded]) -> Iterator[Trial]:
    """Rows of a recorded table as the trials that they were: a study a kernel and problem, in the table's order.

    A library's row stands in the study of every kernel of its problem.
    """
    kernels: dict[tuple[object, ...], dict[str, None]] = {}
    for row in rows:
        if row.role is Role.CANDIDATE:
            kernels.setdefault(_problem(row), {})[row.kernel] = None
    asked: Counter[str] = Counter()
    libraries: Counter[str] = Counter()
    for row in rows:
        shape = shape_text(row.dims) + (f"-{row.layout}" if row.layout else "") if row.dims else ""
        candidate = row.role is Role.CANDIDATE
        for kernel in [row.kernel] if candidate else kernels.get(_problem(row), {"": None}):
            study = "-".join(filter(None, (kernel, row.dtype, shape))) or path.name.partition(".")[0]
            counted = asked if candidate else libraries
            counted[study] += 1
            number = counted[study] if candidate else 1 - counted[study]
            yield _trial(
                row,
                study,
                number,
                shape,
                work_of(kernel, row.dtype, row.layout, tuple(row.dims.items()), row.device),
            )


def _problem(row: Recorded) -> tuple[object, ...]:
    return row.dtype, row.layout, *row.dims.items()


def _trial(row: Recorded, study: str, number: int, shape: str, work: Work) -> Trial:
    predicted = row.time_source == TimeSource.PREDICTED.value
    timed = bool(row.samples_ms) and not predicted
    return Trial(
        study=study,
        number=number,
        context="",
        kernel=row.kernel,
        dtype=row.dtype,
        shape=shape,
        dims=dict(row.dims),
        params=dict(row.params),
        status=row.status,
        stage=row.stage,
        role=row.role,
        reason=row.reason,
        flops=work.flops,
        bytes=work.bytes,
        details={} if work.roofline_ms is None else {"roofline_ms": work.roofline_ms},
        time_source=TimeSource(row.time_source)
        if row.time_source
        else TimeSource.MEASURED
        if timed
        else None,
        timing=Timing(row.samples_ms, row.method, row.cache, energy=row.energy) if timed else None,
        predicted_ms=row.time_ms if predicted and row.status is Status.OK else None,
        build=Build("", "", Path(), row.kernel, "", registers=row.registers)
        if row.registers is not None
        else None,
        device=row.device,
        device_uuid=row.device_uuid,
        driver=row.driver,
        build_s=row.build_s,
        measure_s=row.measure_s,
    )
