"""What was found, in sentences: which is best, by how much, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sweeper.cli.verdicts import comparison_text
from sweeper.report.study import Problem
from sweeper.report.winner import Winner
from sweeper.report.wording import (
    configuration,
    count,
    energy,
    library,
    percent,
    problem_title,
    rate,
    setting,
    span,
    time,
)

__all__ = ["best_of", "lead", "sentence", "sure"]


def best_of(winners: Sequence[Winner]) -> Winner | None:
    """The best kernel of one problem: by what its studies rank by, a confirmed one by its confirmed time."""
    return min(winners, key=value, default=None)


def value(winner: Winner) -> float:
    """What a winner is compared by: joules where energy was the objective, else ms."""
    if winner.study.objective == "energy" and winner.energy_j is not None:
        return winner.energy_j
    return winner.time_ms


def sentence(problem: Problem, winners: Sequence[Winner]) -> str:
    """The verdict on one problem."""
    winner = best_of(winners)
    if winner is None:
        tried = sum(len(study.rows) for study in problem.studies)
        return (
            f"{setting(problem)} there is no valid configuration among {count(tried, 'tried one', 'tried')};"
            " the reasons are under Failures."
        )
    which = f"{winner.study.kernel} with {configuration(winner.params) or 'no parameters'}"
    if winner.study.objective == "energy" and winner.energy_j is not None:
        what = (
            f"{which} takes the least energy, {energy(winner.energy_j)} a launch, in {time(winner.time_ms)}"
        )
    elif problem.predicted:
        what = f"{which} is predicted to be fastest, {time(winner.time_ms)} a launch"
    else:
        what = f"{which} is fastest, {time(value(winner))} a launch"
    shares = [
        f"{rate(winner.gflops)} GFLOP/s" if winner.gflops else "",
        f"{percent(winner.percent_of_library)} % of {library(winner.library.name)}'s speed"
        if winner.library is not None and winner.percent_of_library is not None
        else "",
        f"{percent(winner.percent_of_roofline)} % of the roofline"
        if winner.percent_of_roofline is not None
        else "",
    ]
    told = ", ".join(share for share in shares if share)
    return f"{setting(problem)}, {what}{f' ({told})' if told else ''}. {sure(problem, winner)}"


def sure(problem: Problem, winner: Winner) -> str:
    """How sure the winner is, in a sentence or two."""
    if problem.predicted:
        return "Predicted by the static model; proved right on the CPU, nothing was timed."
    near = (
        f" {count(winner.near, 'other', 'others')} of {count(winner.study.valid, 'valid one')}"
        f" {'is' if winner.near == 1 else 'are'} within 1 %."
        if winner.near
        else ""
    )
    if winner.standing is not None:
        told = [
            comparison_text(each, "the default" if name == "default" else library(name))
            for name, each in (winner.standing.against or {}).items()
        ]
        blocks = winner.confirmed["confirmed_blocks"]
        return f"Confirmed in {count(blocks, 'block')}{': ' + ', '.join(told) if told else ''}.{near}"
    if winner.low_ms is None or winner.high_ms is None:
        return f"Too few samples for an interval; not confirmed.{near}"
    versus = {
        "faster": f", clear of {_library(winner)}'s interval",
        "slower": f", behind {_library(winner)}'s interval",
        "unsure": f", which overlaps with {_library(winner)}'s",
        "": "",
    }[winner.against]
    kind = "Replayed; 95" if problem.source == "replayed" else "95"
    return f"{kind} % interval {span(winner.low_ms, winner.high_ms)}{versus}; not confirmed in turns.{near}"


def _library(winner: Winner) -> str:
    return library(winner.library.name) if winner.library is not None else "the library"


def lead(problems: Sequence[Problem], winners: Sequence[Sequence[Winner]]) -> str:
    """All problems in a sentence; empty where there is one alone, whose own says it."""
    if len(problems) < 2:
        return ""
    best = [best_of(each) for each in winners]
    answered = [one for one in best if one is not None]
    whole = f"{count(len(problems), 'problem')} have a valid configuration."
    text = f"All {whole}" if len(answered) == len(problems) else f"{len(answered)} of {whole}"
    shares = [one.percent_of_library for one in answered if one.percent_of_library]
    if not shares:
        return text
    mean = math.exp(math.fsum(map(math.log, shares)) / len(shares))
    least = min(shares)
    where = next(
        problem_title(problem)
        for problem, one in zip(problems, best, strict=True)
        if one is not None and one.percent_of_library == least
    )
    ahead = sum(share > 100 for share in shares)
    return (
        f"{text} In {ahead} of {len(shares)} with a library beside them the best is faster than the library;"
        f" the geometric mean is {percent(mean)} % of its speed, the least {percent(least)} % ({where})."
    )
