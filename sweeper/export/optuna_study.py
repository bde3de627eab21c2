"""Every study of the results as a study of Optuna's, in a SQLite file or a database, for its dashboard and plots.

Finished configurations are COMPLETE with their time in ms (joules where energy was the objective), failed ones FAIL
with status, stage and reason. What else a row knows is in the trial's user attributes under the column's name.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.atomic import atomic_write
from sweeper.errors import ConfigError, NoValidConfiguration, StorageError, SweeperError
from sweeper.export.chosen import Chosen, Filters
from sweeper.export.optuna_trials import TRIAL, add_trials, told
from sweeper.export.select import selected
from sweeper.model import Role
from sweeper.results import Results
from sweeper.sqlite_file import connect_read_only
from sweeper.table.ranking import library_rows, rankable

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["write_studies"]

_OF_THE_STUDY = (
    "kernel",
    "dtype",
    "shape",
    "device",
    "driver",
    "compiler",
    "kernel_digest",
    "dims",
    "context",
)
_OURS = "sweeper_study"
_NOBODY_CLOCKED = frozenset({"predicted", "replayed"})
# What of an Optuna file was not exported by this: studies, and trials that somebody added since.
_OTHERS = """
SELECT (SELECT COUNT(*) FROM studies WHERE study_id NOT IN
         (SELECT study_id FROM study_user_attributes WHERE key = :study))
     + (SELECT COUNT(*) FROM trials WHERE trial_id NOT IN
         (SELECT trial_id FROM trial_user_attributes WHERE key = :trial))
"""


Named = tuple[str, "pd.DataFrame", Mapping[str, Any]]
"""A study's name, its candidates and its attributes."""


def write_studies(
    results: Sequence[Results], output: str, filters: Filters, *, allow_predicted: bool = False
) -> list[str]:
    """Write a study for each one in `results` that `filters` mean; gives their names.

    `output` is the path of an SQLite file, written whole or not at all, or a database's URL. A file that is there
    is replaced only if all in it was exported by this; in a database a study of the same name is an error, and
    nothing is written. Raises ConfigError, NoValidConfiguration where nothing may rank, and StorageError.
    """
    studies = _studies(results, filters, allow_predicted)
    if "://" in output:
        with _quiet():
            _fill(output, studies)
    else:
        path = Path(output)
        _check_ours(path)
        with tempfile.TemporaryDirectory() as folder, _quiet():
            made = Path(folder) / "studies.db"
            _fill(f"sqlite:///{made}", studies)
            atomic_write(path, made.read_bytes())
    return [name for name, _, _ in studies]


def _studies(results: Sequence[Results], filters: Filters, allow_predicted: bool) -> list[Named]:
    """The studies that are meant; one of a name that was given before has its folder's too."""
    found: list[tuple[Results, pd.DataFrame, Chosen]] = []
    for one in results:
        for _, rows in one.trials.groupby("study", sort=False):
            candidates = rows[rows["role"] == Role.CANDIDATE.value]
            sources = set(rankable(candidates)["time_source"])
            if len(candidates) and (allow_predicted or not sources or sources - _NOBODY_CLOCKED):
                found.append((one, rows, _shown(candidates.iloc[0])))
    kept = {id(one) for one in selected([shown for _, _, shown in found], filters)}
    found = [one for one in found if id(one[2]) in kept]
    if not any(len(rankable(rows)) for _, rows, _ in found):
        raise NoValidConfiguration(
            f"no measured configuration in {', '.join(one.name for one in results)}",
            hint="measure on a GPU, or export predicted times, marked as such, with --allow-predicted",
        )
    given: set[str] = set()
    return [_named(one, rows, given) for one, rows, _ in found]


def _named(results: Results, rows: pd.DataFrame, given: set[str]) -> Named:
    candidates = rows[rows["role"] == Role.CANDIDATE.value]
    first = candidates.iloc[0]
    study = name = str(first["study"])
    number = 1
    while name in given:
        name, number = f"{study} ({results.name}{f' {number}' * (number > 1)})", number + 1
    given.add(name)
    libraries = {row["kernel"]: float(row["time_ms"]) for row in library_rows(rows).to_dict("records")}
    attributes = {_OURS: study, "results": results.name, "libraries_ms": libraries}
    attributes |= {column: str(first[column]) for column in _OF_THE_STUDY if told(first[column])}
    return name, candidates, attributes


def _shown(row: pd.Series) -> Chosen:
    """What filters look at."""
    dims = tuple(json.loads(row["dims"] or "{}").items())
    return Chosen(
        row["kernel"], row["dtype"], "", row["device"], dims, {}, 0.0, "measured", shape=row["shape"]
    )


# --- Optuna's side ------------------------------------------------------------------------------------


def _fill(url: str, studies: Sequence[Named]) -> None:
    import optuna
    import sqlalchemy as sa

    shown = _without_password(url)
    try:
        storage = optuna.storages.RDBStorage(url)
    except (sa.exc.SQLAlchemyError, ImportError, ValueError, RuntimeError) as error:
        raise StorageError(f"Optuna cannot open {shown}: {_first_line(error)}") from None
    made: list[str] = []
    try:
        there = set(optuna.study.get_all_study_names(storage)) & {name for name, _, _ in studies}
        if there:
            raise ConfigError(
                f"{shown} has a study {min(there)!r} already",
                hint="delete it with `optuna delete-study`, or name another database",
            )
        for name, rows, attributes in studies:
            study = optuna.create_study(storage=storage, study_name=name, direction="minimize")
            made.append(name)
            energy = (rows["objective"] == "energy").fillna(value=False).any()
            study.set_metric_names(["energy_j" if energy else "time_ms"])
            for key, value in attributes.items():
                study.set_user_attr(key, value)
            add_trials(storage.engine, name, rows)
    except BaseException as error:
        for name in made:
            optuna.delete_study(study_name=name, storage=storage)
        if isinstance(error, sa.exc.SQLAlchemyError):
            raise StorageError(f"{shown}: {_first_line(error)}") from None
        raise
    finally:
        storage.engine.dispose()


# --- Files --------------------------------------------------------------------------------------------


def _check_ours(path: Path) -> None:
    """Raise ConfigError where the file at `path` holds anything but studies and trials that were exported by this."""
    if not path.exists():
        return
    try:
        with contextlib.closing(connect_read_only(path)) as connection:
            (others,) = connection.execute(_OTHERS, {"study": _OURS, "trial": TRIAL}).fetchone()
    except (sqlite3.Error, SweeperError):
        others = 1
    if others:
        raise ConfigError(
            f"--output {path} is there and holds more than an export", hint="name another file, or remove it"
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


def _without_password(url: str) -> str:
    import sqlalchemy as sa

    try:
        return sa.make_url(url).render_as_string(hide_password=True)
    except sa.exc.ArgumentError:
        return "that URL"


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0]
