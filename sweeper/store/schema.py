"""The tables of a store.

`meta` names the version of the schema; `runs` holds one record of provenance a run; `studies` who works
on a study at present; `attempts` configurations that were begun and are not finished, once for each time that
the machine was started meanwhile; `trials` one row a finished trial, in the order they were stored;
`confirmations` one row for each of those that were timed in turns after a search; `superseded` the trials of this
store in whose place `sweeper.collect` put better ones.

Version 2 added `confirmations`, version 3 `boot` to `attempts`, version 4 `superseded` and an index by study; an
older store is given all of them when it is opened.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from sweeper.errors import StorageError
from sweeper.record import FIELDS
from sweeper.store.engine import transaction
from sweeper.store.errors import Place, corrupt

__all__ = [
    "ROW_END",
    "SCHEMA_VERSION",
    "attempts",
    "confirmations",
    "create",
    "meta",
    "metadata",
    "prepare",
    "runs",
    "studies",
    "superseded",
    "trials",
    "version_of",
]

SCHEMA_VERSION = 4
ROW_END = "."
_POSTGRESQL_LOCK = 7_933_370

metadata = sa.MetaData()

meta = sa.Table(
    "meta",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("started", sa.Text, nullable=False),
    sa.Column("record", sa.Text, nullable=False),
)

studies = sa.Table(
    "studies",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text),
    sa.Column("host", sa.Text),
    sa.Column("pid", sa.Integer),
    sa.Column("since", sa.Text),
    sa.Column("seen", sa.Float),
)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("context", sa.Text, primary_key=True),
    sa.Column("params_key", sa.Text, primary_key=True),
    # Which start of the machine it was begun in.
    sa.Column("boot", sa.Text, primary_key=True),
)

_TYPES: dict[str, Any] = {
    "number": sa.Integer,
    "predicted_ms": sa.Double,
    "occupancy": sa.Double,
    "build_s": sa.Double,
    "measure_s": sa.Double,
}


def _of_trials() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("params_key", sa.Text, nullable=False),
        *(sa.Column(name, _TYPES.get(name, sa.Text)) for name in FIELDS),
        # Stays last: where a file is cut off, the row that lost its end has lost this.
        sa.Column("row_end", sa.Text, nullable=False),
    )


trials = sa.Table("trials", metadata, *_of_trials())
sa.Index("trials_reuse", trials.c.context, trials.c.params_key, trials.c.role)
_by_study = sa.Index("trials_study", trials.c.study, trials.c.id)
# Baselines all have number 0, and a rerun may measure them again.
_once = trials.c.role == "candidate"
sa.Index(
    "trials_once",
    trials.c.study,
    trials.c.number,
    unique=True,
    sqlite_where=_once,
    postgresql_where=_once,
)
superseded = sa.Table("superseded", metadata, *_of_trials())

confirmations = sa.Table(
    "confirmations",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("confirmation", sa.Text, nullable=False),
    sa.Column("study", sa.Text, nullable=False),
    sa.Column("params_key", sa.Text, nullable=False),
    sa.Column("blocks_ms", sa.Text, nullable=False),
    # All of it, as JSON.
    sa.Column("record", sa.Text, nullable=False),
)
sa.Index("confirmations_study", confirmations.c.study)


def prepare(engine: sa.Engine, place: Place, *, check: bool) -> None:
    """Make the tables of a new store, or see that those of an old one are ours, whole and not newer.

    One of an older version gets the tables that it lacks. `check` has a SQLite file looked through for
    damage. Raises StorageError.
    """
    with place.guard(), engine.connect() as connection:
        if check:
            found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
            if found != "ok":
                raise corrupt(place.label, str(found))
        tables = set(sa.inspect(connection).get_table_names())
        current = meta.name in tables and version_of(connection, place) == SCHEMA_VERSION
    if current:
        return
    if check and tables and meta.name not in tables:
        raise _foreign(place, f": it has the tables {', '.join(sorted(tables))}")
    with transaction(engine, place) as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_POSTGRESQL_LOCK})")
        create(connection)


def create(connection: sa.Connection) -> None:
    """Make the tables that are missing and note the schema's version."""
    inspector = sa.inspect(connection)
    if inspector.has_table(attempts.name) and "boot" not in {
        column["name"] for column in inspector.get_columns(attempts.name)
    }:
        # Of version 2, in which nothing wrote to it.
        attempts.drop(connection)
    metadata.create_all(connection)
    _by_study.create(connection, checkfirst=True)
    if connection.scalar(sa.select(meta.c.value)) is None:
        connection.execute(sa.insert(meta), {"name": "schema", "value": str(SCHEMA_VERSION)})
    else:
        connection.execute(sa.update(meta).values({"value": str(SCHEMA_VERSION)}))


def version_of(connection: sa.Connection, place: Place) -> int:
    """The version of an existing store. Raises StorageError for one that is newer, or not ours."""
    columns = {c["name"] for c in sa.inspect(connection).get_columns(meta.name)}
    if columns != {c.name for c in meta.columns}:
        raise _foreign(place)
    version = connection.scalar(sa.select(meta.c.value).where(meta.c.name == "schema"))
    if version is None or not str(version).isdecimal():
        raise _foreign(place)
    if int(version) > SCHEMA_VERSION:
        raise StorageError(
            f"{place.label} was written by a newer version of sweeper (schema {version}; this one knows"
            f" {SCHEMA_VERSION})",
            hint="upgrade with pip install --upgrade sweeper, or choose another results_dir",
        )
    return int(version)


def _foreign(place: Place, why: str = "") -> StorageError:
    return StorageError(f"{place.label} is a database of something else{why}", hint="choose another file")
