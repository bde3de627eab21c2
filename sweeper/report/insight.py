"""What the analysis of importance says of a study, as plain values; or why it says nothing."""

from __future__ import annotations

from typing import Any

from sweeper.errors import SweeperError
from sweeper.importance import Importance, analyse, declared_whole
from sweeper.report.study import Problem, Study

__all__ = ["LEAST", "insight_of"]

LEAST = 8
"""Fewer valid configurations than this say nothing of what matters."""

_PAIRS = 15


def insight_of(problem: Problem, study: Study) -> tuple[Importance | None, str]:
    """The analysis, or None and the reason."""
    if study.valid < LEAST:
        return None, f"Fewer than {LEAST} valid configurations: too few to say what matters."
    if not study.varied:
        return None, "No parameter was varied."
    rows = problem.result.trials
    try:
        found = analyse(
            rows[rows["study"] == study.name],
            study.name,
            confirmed=study.finals,
            whole=declared_whole(problem.result.path) or None,
        )
    except SweeperError as error:
        return None, error.message
    return found, ""


def record(found: Importance) -> dict[str, Any]:
    """What the page draws of it."""
    plain = found.record()
    kept = ("how", "fit", "parameters", "neighbours", "robustness", "notes", "evaluator", "unit")
    plain["pairs"] = plain["pairs"][:_PAIRS]
    return {name: plain[name] for name in (*kept, "pairs")}
