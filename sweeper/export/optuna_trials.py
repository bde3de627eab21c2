"""The trials of a study in Optuna's tables: states, values, parameters with their distributions, user attributes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sweeper.expressions import Value
from sweeper.model import Status
from sweeper.table.ranking import ranked_by

if TYPE_CHECKING:
    import pandas as pd
    import sqlalchemy as sa
    from optuna.distributions import BaseDistribution

__all__ = ["TRIAL", "add_trials", "distribution", "told"]

TRIAL = "trial"
"""The user attribute with our number of a trial, which every exported one has."""

_ATTRIBUTES = (
    "status", "stage", "reason", "exception", "note", "time_source", "time_low_ms", "time_high_ms", "samples", "cache",
    "gflops", "percent_of_library", "percent_of_roofline", "energy_j", "registers", "shared_bytes", "spill_bytes",
    "threads", "blocks", "occupancy", "limited_by", "error_ratio", "build_s", "measure_s",
)  # fmt: skip
_TABLES = ("studies", "trials", "trial_params", "trial_values", "trial_user_attributes")


def add_trials(engine: sa.Engine, study: str, rows: pd.DataFrame) -> None:
    """Insert the trials of `study`, a table at a time: by Optuna's `add_trial` each takes 0.1 s, 20 000 half an hour.

    The tables are those of its schema 12, which all releases from 3.0 on have.
    """
    import sqlalchemy as sa
    from optuna.distributions import distribution_to_json

    chosen = [json.loads(params) for params in rows["params"]]
    names = dict.fromkeys(name for params in chosen for name in params)
    spans = {name: distribution([params[name] for params in chosen if name in params]) for name in names}
    texts = {name: distribution_to_json(span) for name, span in spans.items()}
    values = ranked_by(rows).to_list()
    complete = [
        status == Status.OK.value and math.isfinite(value)
        for status, value in zip(rows["status"], values, strict=True)
    ]
    tables = sa.MetaData()
    tables.reflect(engine, only=_TABLES)
    trials, params_of, values_of, attributes_of = (tables.tables[name] for name in _TABLES[1:])
    moment = datetime.now(UTC).replace(tzinfo=None)
    with engine.begin() as connection:
        studies = tables.tables["studies"]
        number_of = connection.scalar(sa.select(studies.c.study_id).where(studies.c.study_name == study))
        connection.execute(
            sa.insert(trials),
            [
                {
                    "number": number,
                    "study_id": number_of,
                    "state": "COMPLETE" if done else "FAIL",
                    "datetime_start": moment,
                    "datetime_complete": moment,
                }
                for number, done in enumerate(complete)
            ],
        )
        query = sa.select(trials.c.trial_id).where(trials.c.study_id == number_of).order_by(trials.c.number)
        ids = list(connection.scalars(query))
        cells_of: list[dict[str, Any]] = []
        cells = {name: rows[name].to_list() for name in _ATTRIBUTES}
        for place, (trial, own) in enumerate(zip(ids, rows["trial"], strict=True)):
            cells_of.append({"trial_id": trial, "key": TRIAL, "value_json": json.dumps(int(own))})
            cells_of += [
                {"trial_id": trial, "key": name, "value_json": json.dumps(column[place])}
                for name, column in cells.items()
                if told(column[place])
            ]
        of_params = [
            {
                "trial_id": trial,
                "param_name": name,
                "param_value": spans[name].to_internal_repr(value),
                "distribution_json": texts[name],
            }
            for trial, params in zip(ids, chosen, strict=True)
            for name, value in params.items()
        ]
        of_values = [
            {"trial_id": trial, "objective": 0, "value": value, "value_type": "FINITE"}
            for trial, value, done in zip(ids, values, complete, strict=True)
            if done
        ]
        for table, lines in ((params_of, of_params), (values_of, of_values), (attributes_of, cells_of)):
            if lines:
                connection.execute(sa.insert(table), lines)


def distribution(values: Sequence[Value]) -> BaseDistribution:
    """What Optuna is told of a parameter: a range of integers (logarithmic for powers of two, else with the levels'
    common step) or of numbers, else categories.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if any(isinstance(value, bool | str) for value in values):
        return CategoricalDistribution(_distinct(values))
    numbers = sorted({value for value in values if not isinstance(value, str)})
    if any(isinstance(value, float) for value in numbers):
        return FloatDistribution(float(numbers[0]), float(numbers[-1]))
    levels = [int(value) for value in numbers]
    if len(levels) > 2 and levels[0] > 0 and all(level & (level - 1) == 0 for level in levels):
        return IntDistribution(levels[0], levels[-1], log=True)
    step = math.gcd(*(high - low for low, high in pairwise(levels))) if len(levels) > 1 else 1
    return IntDistribution(levels[0], levels[-1], step=step)


def _distinct(values: Sequence[Value]) -> list[Value]:
    """Each once, by kind and value: True is not 1 here."""
    return [
        json.loads(text)
        for text in sorted(
            {json.dumps(value) for value in values}, key=lambda t: (json.loads(t).__class__.__name__, t)
        )
    ]


def told(value: Any) -> bool:
    """Whether a cell has a value: neither blank nor NA."""
    import pandas as pd

    return not pd.isna(value) and value != ""
