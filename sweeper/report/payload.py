"""All that the page draws, as one header and its arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sweeper.importance import Importance
from sweeper.report.columns import Columns
from sweeper.report.contents import Contents, Found
from sweeper.report.finalists import finalists_of
from sweeper.report.insight import record
from sweeper.report.levels import Levels
from sweeper.report.study import Problem, Study, floats
from sweeper.report.winner import Winner, rates
from sweeper.report.wording import configuration, library, number, problem_title
from sweeper.resources.roofline import gflops

__all__ = ["payload"]

_REASON = 400
_CLOCKS = ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c")


def payload(contents: Contents) -> str:
    """The packed blob that `report.js` reads."""
    columns = Columns()
    header: dict[str, Any] = {"problems": [], "studies": [], "results": [r.name for r in contents.results]}
    for found, title in zip(contents.found, contents.titles, strict=True):
        places = []
        for study, winner, insight, why_not in zip(
            found.problem.studies, found.by_study, found.insights, found.why_not, strict=True
        ):
            places.append(len(header["studies"]))
            one = _study(found.problem, study, winner, columns)
            one["problem"] = len(header["problems"])
            one["insight"] = _insight(insight)
            one["noInsight"] = why_not
            header["studies"].append(one)
        problem = _problem(found, title)
        won = [at for at, mine in zip(places, found.by_study, strict=True) if mine and mine is found.best]
        header["problems"].append(
            {
                **problem,
                "studies": places,
                "winner": won[0] if won else None,
                "result": contents.place_of(found),
            }
        )
    return columns.pack(_finite(header))


def _problem(found: Found, title: str) -> dict[str, Any]:
    problem, ceilings = found.problem, found.ceilings
    libraries = [
        {
            "name": library(str(row["kernel"])),
            "time": _real(row["time_ms"]),
            "low": _real(row["time_low_ms"]),
            "high": _real(row["time_high_ms"]),
            "gflops": gflops(problem.flops, float(row["time_ms"])) if problem.flops else None,
        }
        for _, row in problem.libraries.drop_duplicates("kernel").iterrows()
    ]
    return {
        "title": problem_title(problem),
        "label": title,
        "shape": problem.shape,
        "sizes": problem.sizes,
        "dtype": problem.dtype,
        "device": problem.device,
        "source": problem.source,
        "flops": problem.flops,
        "bytes": problem.bytes,
        "peak": ceilings.peak_gflops,
        "bandwidth": ceilings.bandwidth_gbs,
        "roof": ceilings.roof_gflops(problem.flops),
        "roofMs": ceilings.roofline_ms,
        "limits": ceilings.source,
        "libraries": libraries,
    }


def _study(problem: Problem, study: Study, winner: Winner | None, columns: Columns) -> dict[str, Any]:
    rows = study.rows
    statuses = list(dict.fromkeys(rows["status"].tolist()))
    reasons, reason_codes = _texts(rows["reason"].fillna("").tolist())
    kind, common, finalists = finalists_of(problem, study, winner.place if winner else None)
    return {
        "name": study.name,
        "kernel": study.kernel,
        "tried": len(rows),
        "valid": study.valid,
        "energy": study.objective == "energy",
        "best": None if winner is None else winner.place,
        "bestText": "" if winner is None else configuration(winner.params),
        "near": 0 if winner is None else winner.near,
        "params": [_parameter(one, columns) for one in study.varied],
        "fixed": [
            {"name": one.name, "value": number(one.values[0])} for one in study.params if len(one.values) == 1
        ],
        "trial": columns.integers(rows["trial"].to_numpy(dtype=np.int64, na_value=0)),
        "value": columns.floats(study.rank),
        "time": columns.floats(np.where(np.isfinite(study.rank), floats(rows, "time_ms"), np.nan)),
        "low": columns.floats(floats(rows, "time_low_ms")),
        "high": columns.floats(floats(rows, "time_high_ms")),
        "gflops": columns.floats(rates(problem, study)),
        "status": columns.codes([statuses.index(value) for value in rows["status"]]),
        "statuses": statuses,
        "reason": columns.codes(reason_codes),
        "reasons": reasons,
        "clocks": {
            name: columns.floats(values)
            for name in _CLOCKS
            if np.isfinite(values := floats(rows, name)).any()
        },
        "finalKind": kind,
        "finalCommon": common,
        "finalists": [
            {
                "label": one.label,
                "kind": one.kind,
                "winner": one.winner,
                "times": columns.floats(one.times_ms),
            }
            for one in finalists
        ],
    }


def _parameter(one: Levels, columns: Columns) -> dict[str, Any]:
    return {
        "name": one.name,
        "levels": [number(value) for value in one.values],
        "codes": columns.codes(one.codes),
    }


def _texts(values: Sequence[str]) -> tuple[list[str], list[int]]:
    """Distinct texts, and the place of each value among them; −1 for an empty one."""
    places: dict[str, int] = {}
    codes = [places.setdefault(value[:_REASON], len(places)) if value else -1 for value in values]
    return list(places), codes


def _insight(found: Importance | None) -> dict[str, Any] | None:
    return None if found is None else record(found)


def _real(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _finite(value: Any) -> Any:
    """The same with None for what JSON has no word for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, np.generic):
        return _finite(value.item())
    if isinstance(value, Mapping):
        return {name: _finite(part) for name, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list) else value
