"""What a report is made from: every problem with its winners, ceilings and analyses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sweeper.importance import Importance
from sweeper.report.insight import insight_of
from sweeper.report.limits import Ceilings, ceilings_of
from sweeper.report.study import Problem, problems_of
from sweeper.report.verdict import best_of, lead, sentence
from sweeper.report.winner import Library, Winner, library_of, winner_of_study
from sweeper.report.wording import short_titles
from sweeper.results import Results

__all__ = ["Contents", "Found", "contents_of"]

_MOST_ANALYSED = 12
"""Analyses take seconds each on large studies; of more studies than this, those of most rows have one."""


@dataclass(frozen=True, slots=True)
class Found:
    """One problem. `by_study`, `insights` and `why_not` stand beside its studies; `winners` leaves out the Nones."""

    problem: Problem
    ceilings: Ceilings
    library: Library | None
    by_study: tuple[Winner | None, ...]
    insights: tuple[Importance | None, ...]
    why_not: tuple[str, ...]

    @property
    def winners(self) -> list[Winner]:
        """The best of each study that has a valid configuration."""
        return [one for one in self.by_study if one is not None]

    @property
    def best(self) -> Winner | None:
        """The best of all kernels."""
        return best_of(self.winners)


@dataclass(frozen=True, slots=True)
class Contents:
    """The whole report: `results` as they were read, and what was `found` in them."""

    title: str
    results: tuple[Results, ...]
    found: tuple[Found, ...]

    @property
    def lead(self) -> str:
        """All problems in a sentence; empty where there is one."""
        return lead([one.problem for one in self.found], [one.winners for one in self.found])

    @property
    def sentences(self) -> list[str]:
        """A verdict for each problem."""
        return [sentence(one.problem, one.winners) for one in self.found]

    @property
    def titles(self) -> list[str]:
        """What each problem is called beside the others."""
        return short_titles([one.problem for one in self.found])

    def place_of(self, found: Found) -> int:
        """Which of the results it is from."""
        return next(i for i, result in enumerate(self.results) if result is found.problem.result)


def contents_of(results: Sequence[Results], title: str = "") -> Contents:
    """Take `results` apart and judge them."""
    problems = problems_of(results)
    studies = [study for problem in problems for study in problem.studies]
    largest = sorted(studies, key=lambda study: -len(study.rows))[:_MOST_ANALYSED]
    analysed = {id(study) for study in largest}
    found = tuple(_found(problem, analysed) for problem in problems)
    return Contents(title or _title(results), tuple(results), found)


def _found(problem: Problem, analysed: set[int]) -> Found:
    ceilings, library = ceilings_of(problem), library_of(problem)
    insights = [
        insight_of(problem, study)
        if id(study) in analysed
        else (None, f"Only the {_MOST_ANALYSED} largest studies of a report are analysed.")
        for study in problem.studies
    ]
    return Found(
        problem,
        ceilings,
        library,
        tuple(winner_of_study(problem, study, library, ceilings) for study in problem.studies),
        tuple(insight for insight, _ in insights),
        tuple(why_not for _, why_not in insights),
    )


def _title(results: Sequence[Results]) -> str:
    names = [result.name for result in results]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
