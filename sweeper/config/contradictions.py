"""What is of the right type and still cannot be meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweeper.cluster.settings import why_no_engine
from sweeper.config.schema import BackendConfig, MeasureConfig, PlanConfig, SearchConfig, ShapeConfig
from sweeper.device.clocks import why_no_clock
from sweeper.errors import did_you_mean
from sweeper.search import REGISTRY, why_not_several
from sweeper.statistics import CRITERIA, LEAST_FOR_ENTROPY
from sweeper.table.objective import OBJECTIVES

__all__ = ["contradictions"]

_STORES = ("sqlite", "postgresql")
_PLANS = ("text", "json")
_MOST_FINALISTS = 64
# Two-sided 95 % for five comparisons at once takes 8 signs that agree: 5 · 2 / 2⁸ < 0.05.
_LEAST_BLOCKS = 8
_MOST_BLOCKS = 1000
_LEAST_ENERGY_S, _MOST_ENERGY_S = 0.05, 30.0


def contradictions(values: Mapping[str, Any]) -> list[str]:
    """What is of the right type and still cannot be meant."""
    problems = []
    search, measure = values.get("search"), values.get("measure")
    if isinstance(search, SearchConfig):
        directions = {"time_ms": "minimize", "gflops": "maximize"}
        if search.objective not in directions:
            problems.append(f"search.objective = {search.objective!r} is none of {', '.join(directions)}")
        elif search.direction not in (None, directions[search.objective]):
            problems.append(
                f"search.direction = {search.direction!r} contradicts search.objective = {search.objective}:"
                f" leave it out, or write {directions[search.objective]}"
            )
        if search.name not in REGISTRY:
            known = ", ".join(REGISTRY)
            problems.append(
                f"search.name = {search.name!r} is none of {known}{did_you_mean(search.name, REGISTRY)}"
            )
        if search.budget is not None and search.budget < 1:
            problems.append(f"search.budget = {search.budget}: at least 1, or null for every configuration")
        if not 1 <= search.lookahead <= 1024:
            problems.append(f"search.lookahead = {search.lookahead} is not between 1 and 1024")
    if isinstance(measure, MeasureConfig):
        problems.extend(_wrong_measures(measure))
        problems.extend(_wrong_finals(measure))
        problems.extend(_wrong_objective(measure, search))
    shape = values.get("shape")
    if values.get("shapes") and isinstance(shape, ShapeConfig) and (shape.name or shape.sizes):
        problems.append("shape and shapes are both given: write one of them")
    problems.extend(_wrong_store(values.get("store", "sqlite")))
    problems.extend(_wrong_plan(values.get("plan")))
    backend = values.get("backend")
    if isinstance(backend, BackendConfig):
        problems.extend(_wrong_devices(backend.devices))
        problems.extend(why_no_engine(values.get("engine"), backend.device, backend.devices))
    return problems


def _wrong_measures(measure: MeasureConfig) -> list[str]:
    problems = []
    if not 1 <= measure.min_samples <= measure.max_samples:
        problems.append(
            f"measure.min_samples = {measure.min_samples} and measure.max_samples = {measure.max_samples}:"
            " at least 1, and the first no larger than the second"
        )
    if measure.cache not in ("cold", "warm", "both"):
        problems.append(f"measure.cache = {measure.cache!r} is none of cold, warm, both")
    if measure.stopping not in CRITERIA:
        known = ", ".join(CRITERIA)
        problems.append(
            f"measure.stopping = {measure.stopping!r} is none of {known}{did_you_mean(measure.stopping, CRITERIA)}"
        )
    if measure.stopping in ("entropy", "both") and measure.max_samples < LEAST_FOR_ENTROPY:
        problems.append(
            f"measure.stopping = {measure.stopping} takes {LEAST_FOR_ENTROPY} samples to say anything, and"
            f" measure.max_samples = {measure.max_samples}"
        )
    return problems + _wrong_limits(measure)


def _wrong_limits(measure: MeasureConfig) -> list[str]:
    problems = []
    if not measure.entropy_bits > 0:
        problems.append(f"measure.entropy_bits = {measure.entropy_bits}: more than 0")
    if measure.graph_below_ms < 0:
        problems.append(f"measure.graph_below_ms = {measure.graph_below_ms}: 0 for never, or more")
    if measure.clock_tolerance is not None and not 0 < measure.clock_tolerance < 1:
        problems.append(
            f"measure.clock_tolerance = {measure.clock_tolerance}: between 0 and 1, or null for any clock"
        )
    if measure.recovery_s < 0:
        problems.append(f"measure.recovery_s = {measure.recovery_s}: 0 or more")
    if wrong := why_no_clock(measure.lock_clocks):
        problems.append(f"measure.lock_clocks = {measure.lock_clocks!r}: {wrong}")
    if measure.stop_factor is not None and measure.stop_factor <= 1:
        problems.append(f"measure.stop_factor = {measure.stop_factor}: more than 1, or null for never")
    return problems


def _wrong_objective(measure: MeasureConfig, search: SearchConfig | None) -> list[str]:
    problems = []
    objective = measure.objective
    if objective not in OBJECTIVES:
        known = ", ".join(OBJECTIVES)
        problems.append(
            f"measure.objective = {objective!r} is none of {known}{did_you_mean(objective, OBJECTIVES)}"
        )
    if not _LEAST_ENERGY_S <= measure.energy_seconds <= _MOST_ENERGY_S:
        problems.append(
            f"measure.energy_seconds = {measure.energy_seconds}: {_LEAST_ENERGY_S} to {_MOST_ENERGY_S}; the"
            " device's meter moves every few tens of milliseconds"
        )
    if isinstance(search, SearchConfig) and objective != "time" and search.objective == "gflops":
        problems.append(f"search.objective = gflops ranks by time, and measure.objective = {objective}")
    if isinstance(search, SearchConfig) and objective == "both" and search.name in REGISTRY:
        why_not = why_not_several(search.name)
        if why_not:
            problems.append(f"measure.objective = both: {why_not}")
    return problems


def _wrong_finals(measure: MeasureConfig) -> list[str]:
    problems = []
    if not 0 <= measure.confirm <= _MOST_FINALISTS:
        problems.append(
            f"measure.confirm = {measure.confirm}: 0 to {_MOST_FINALISTS} configurations; 0: none"
        )
    if not _LEAST_BLOCKS <= measure.confirm_blocks <= _MOST_BLOCKS:
        problems.append(
            f"measure.confirm_blocks = {measure.confirm_blocks}: {_LEAST_BLOCKS} to {_MOST_BLOCKS}; with fewer"
            " blocks no difference could be told from chance"
        )
    if not 0 < measure.least_effect < 1:
        problems.append(f"measure.least_effect = {measure.least_effect}: between 0 and 1; 0.01 is 1 %")
    return problems


def _wrong_store(store: Any) -> list[str]:
    if store in _STORES:
        return []
    # Not shown: it may be an address, and its password with it.
    return [
        f"store is none of {', '.join(_STORES)}: the address of a server goes into SWEEPER_STORE_URL, not here"
    ]


def _wrong_plan(plan: Any) -> list[str]:
    if not isinstance(plan, PlanConfig):
        return []
    problems = []
    if plan.form not in (None, *_PLANS):
        problems.append(
            f"plan.form = {plan.form!r} is none of {', '.join(_PLANS)}: write plan=true or plan=json"
        )
    if plan.devices is not None and plan.devices < 1:
        problems.append(f"plan.devices = {plan.devices}: at least 1, or null for one job after another")
    return problems


def _wrong_devices(devices: str | tuple[int, ...] | None) -> list[str]:
    if isinstance(devices, str) and devices != "all":
        return [f"backend.devices = {devices!r}: a list such as [0,1], or all"]
    indices = [d for d in devices or () if isinstance(d, int)]
    if isinstance(devices, tuple) and (len(set(indices)) < len(devices) or min(indices, default=-1) < 0):
        return [f"backend.devices = {list(devices)}: at least one device, each once, counted from 0"]
    return []
