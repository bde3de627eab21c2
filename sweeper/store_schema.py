"""The tables of a store.

`meta` names the version of the schema; `runs` holds one record of provenance a run; `studies` who works
on a study at present; `attempts` configurations that were started and are not finished; `trials` one
row a finished trial, in the order they were stored.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from sweeper.record import FIELDS

__all__ = ["SCHEMA_VERSION", "attempts", "meta", "metadata", "runs", "studies", "trials"]

SCHEMA_VERSION = 1

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
    sa.Column("count", sa.Integer, nullable=False),
)

_TYPES: dict[str, Any] = {
    "number": sa.Integer,
    "predicted_ms": sa.Double,
    "occupancy": sa.Double,
    "build_s": sa.Double,
    "measure_s": sa.Double,
}

trials = sa.Table(
    "trials",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("params_key", sa.Text, nullable=False),
    *(sa.Column(name, _TYPES.get(name, sa.Text)) for name in FIELDS),
)
sa.Index("trials_reuse", trials.c.context, trials.c.params_key, trials.c.role)
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
