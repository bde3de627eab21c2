"""What a search is told of a trial, and what rows are ranked by: its time, its energy, or both."""

from __future__ import annotations

import math

from sweeper.model import Status, Trial
from sweeper.table.row import time_ms

__all__ = ["OBJECTIVES", "Objectives", "objective_of", "objective_value", "rank_value"]

OBJECTIVES = ("time", "energy", "both")

Objectives = float | tuple[float, ...] | None
"""One value to be made small, several, or None for a configuration that has failed."""


def objective_of(trial: Trial) -> str:
    """What the search that asked the trial was after."""
    return str(trial.details.get("objective", "time"))


def objective_value(trial: Trial, objective: str) -> Objectives:
    """Milliseconds a launch, joules a launch, or the pair of them; None where one that is wanted is missing."""
    time = time_ms(trial)
    if objective == "time":
        return time
    energy = trial.energy
    if energy is None or trial.status is not Status.OK or not math.isfinite(energy.joules):
        return None
    if objective == "energy":
        return energy.joules
    return None if time is None else (time, energy.joules)


def rank_value(trial: Trial) -> float | None:
    """The value of the trial's own objective that the best has least of; of both, the time."""
    value = objective_value(trial, objective_of(trial))
    return value[0] if isinstance(value, tuple) else value
