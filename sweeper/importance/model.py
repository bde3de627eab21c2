"""What an analysis of importance finds: plain values, for a report or a program to read.

Values are milliseconds a launch, or joules where energy was the objective (`Importance.unit`). Shares are parts of
a variance, 0 to 1. None stands where there is nothing to say.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sweeper.expressions import Value

__all__ = [
    "Importance",
    "Level",
    "Neighbour",
    "Outcome",
    "Pair",
    "Parameter",
    "Robustness",
    "Share",
    "Winner",
]


@dataclass(frozen=True, slots=True)
class Share:
    """A share of a variance; `low` and `high` hold 90 % of what resampled trials give, None where it is exact.

    They tell what chance in the choice of trials does, not how far the model is from the truth.
    """

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """What was tried of one parameter's level, whatever the others were.

    `best` and `median` are of the valid ones; `of_best` is `best` divided by the best of all levels, 1 for the level
    of the fastest configuration tried. `winner`: the winner has this level.
    """

    value: Value
    tried: int
    valid: int
    best: float | None
    median: float | None
    of_best: float | None
    winner: bool


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter that was varied.

    `alone`: the share of the variance of log time that the parameter explains by itself (Sobol's first order).
    `total`: the share that remains once all other parameters are known (Sobol's total order), so with every
    interaction. In a space with constraints `alone` may exceed `total`: others tell part of what it tells.
    `top`: PED-ANOVA, its part in reaching the best tenth; those of all parameters add up to 1.
    `validity`: as `alone`, of whether a configuration is valid at all; None where none or all failed.
    """

    name: str
    ordered: bool
    alone: Share | None
    total: Share | None
    top: Share | None
    validity: Share | None
    levels: tuple[Level, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """What two parameters explain together beyond the sum of what each adds."""

    first: str
    second: str
    share: Share


class Outcome(StrEnum):
    """What is known of a neighbour of the winner."""

    MEASURED = "measured"
    FAILED = "failed"
    NOT_MEASURED = "not measured"
    INFEASIBLE = "infeasible"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The winner with one parameter changed from `own` to `value`, `steps` levels away (0: another category).

    `slowdown` is its value divided by the winner's, `low` and `high` the ends that both intervals allow; None
    unless measured, and the ends also where either has no interval. `guess` is the slowdown that the model
    expects of one that was not measured: no measurement. `reason` says why a failed one failed.
    """

    parameter: str
    own: Value
    value: Value
    steps: int
    outcome: Outcome
    slowdown: float | None = None
    low: float | None = None
    high: float | None = None
    guess: float | None = None
    reason: str = ""
    trial: int | None = None


@dataclass(frozen=True, slots=True)
class Robustness:
    """What one change costs: of the measured neighbours the median and the worst slowdown.

    `within` counts those no more than 5 % slower. None where no neighbour was measured.
    """

    measured: int
    failed: int
    not_measured: int
    within: int
    median: float | None
    worst: float | None


@dataclass(frozen=True, slots=True)
class Winner:
    """The best configuration. `confirmed`: it won where finalists were timed in turns."""

    study: str
    trial: int
    params: Mapping[str, Value]
    value: float
    low: float | None
    high: float | None
    confirmed: bool


@dataclass(frozen=True, slots=True)
class Importance:
    """Why the best of one kernel, precision class, shape, device and source of time is the best.

    `evaluator` names what `alone`, `total` and the pairs come from, `how` says it in a sentence, `fit` is the share
    of the variance that the model predicts of trials it has not seen (None where no model was used). `whole`: every
    feasible configuration is in the table. `failed` counts statuses. `parameters` stand with the most important
    first, `pairs` likewise; `constant` holds the parameters that never varied. `notes` say what a reader should
    know. Without a valid trial `winner` is None, without two different values there are no shares.
    """

    study: str
    kernel: str
    dtype: str
    shape: str
    device: str
    time_source: str
    objective: str
    unit: str
    tried: int
    valid: int
    failed: Mapping[str, int]
    whole: bool
    evaluator: str
    how: str
    fit: float | None
    winner: Winner | None
    parameters: tuple[Parameter, ...]
    pairs: tuple[Pair, ...]
    constant: Mapping[str, Value]
    neighbours: tuple[Neighbour, ...]
    robustness: Robustness
    notes: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
        plain: dict[str, Any] = _plain(self)
        return plain


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value.value if isinstance(value, Outcome) else value
