"""One recorded space as Kernel Tuner's cache or a T4 file, by the writers of `sweeper.recording`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweeper.errors import ConfigError, NoValidConfiguration
from sweeper.export.chosen import Chosen, Filters
from sweeper.export.read import holders
from sweeper.export.select import selected
from sweeper.model import Role
from sweeper.recording import Recorded, read_recorded, write_cache, write_t4
from sweeper.results import read_results

__all__ = ["WRITERS", "recorded_space"]

WRITERS = {"kernel_tuner": write_cache, "t4": write_t4}
_NAMES = ("study.db", "trials.csv")
_NOBODY_CLOCKED = ("predicted", "replayed")


def recorded_space(
    paths: Sequence[Path | str], form: str, filters: Filters, *, allow_predicted: bool = False
) -> bytes:
    """The content of the file, with failed configurations and their reasons in kind.

    Such a file is of one kernel at one problem on one device: ConfigError names what is there where the filters
    leave more. Raises NoValidConfiguration where nothing has a time, StorageError for what cannot be read.
    """
    runs, _ = holders(paths)
    files = [file for path in runs for file in _files(path)]
    if not files:
        raise NoValidConfiguration(
            f"no store or table of trials in {', '.join(Path(path).name for path in paths)}",
            hint="give a results folder, its study.db or its trials.csv",
        )
    spaces: dict[tuple[str, ...], list[Recorded]] = {}
    for file in files:
        for row in read_recorded(file):
            if row.role is Role.CANDIDATE:
                spaces.setdefault(_space(row), []).append(row)
    names = _shape_names(runs) if filters.shape else {}
    shown = {key: _shown(rows[0], names) for key, rows in spaces.items()}
    kept = {id(one) for one in selected(list(shown.values()), filters)}
    chosen = [key for key, one in shown.items() if id(one) in kept]
    if len(chosen) > 1:
        raise ConfigError(
            f"{form} holds one kernel at one problem on one device, and there are {len(chosen)}: "
            + "; ".join(_told(shown[key]) for key in chosen[:6]) + "; …" * (len(chosen) > 6),
            hint="say which with --kernel, --dtype, --device and --shape",
        )  # fmt: skip
    rows = [row for key in chosen for row in spaces[key]]
    clocked = [row for row in rows if allow_predicted or row.time_source not in _NOBODY_CLOCKED]
    if not any(row.usable_ms is not None for row in clocked):
        raise NoValidConfiguration(
            f"no measured configuration in {', '.join(Path(path).name for path in paths)}",
            hint="measure on a GPU, or export predicted times with --allow-predicted",
        )
    with tempfile.TemporaryDirectory() as folder:
        # The writers name the file after the kernel where the rows do not.
        made = Path(folder) / f"{clocked[0].kernel or 'space'}.json"
        WRITERS[form](made, clocked)
        return made.read_bytes()


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    places = [path, *sorted(inner for inner in path.iterdir() if inner.is_dir())]
    found = [next((place / name for name in _NAMES if (place / name).is_file()), None) for place in places]
    # A folder's own results are what it is named for, as everywhere.
    return [one for one in found[:1] if one is not None] or [one for one in found if one is not None]


def _space(row: Recorded) -> tuple[str, ...]:
    return row.kernel, row.dtype, row.layout, row.device, row.device_uuid, str(sorted(row.dims.items()))


def _shape_names(paths: Sequence[Path]) -> dict[str, str]:
    """What the shapes are called, by their sizes: recorded rows know only these."""
    return {
        str(sorted(json.loads(dims).items())): shape
        for results in read_results(paths)
        for dims, shape in zip(results.trials["dims"], results.trials["shape"], strict=True)
        if dims
    }


def _shown(row: Recorded, names: Mapping[str, str]) -> Chosen:
    """What filters look at."""
    dims = tuple(row.dims.items())
    shape = names.get(str(sorted(dims)), "")
    return Chosen(row.kernel, row.dtype, row.layout, row.device, dims, {}, 0.0, "measured", shape=shape)


def _told(one: Chosen) -> str:
    return " ".join(filter(None, (one.kernel, one.dtype, one.sizes, one.layout, f"on {one.device}")))
