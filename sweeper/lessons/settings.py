"""The keys of a configuration that choose a report and say what it is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweeper.errors import did_you_mean

__all__ = ["REPORTS", "Pitfall", "why_no_report"]

REPORTS: Mapping[str, str] = {
    "course": "kernels in the order of their source files' numbers, each with what it gains over the one before",
    "pitfalls": "pairs of one kernel's configurations, with and without a mistake",
    "roofline": "the best of each kernel and shape by arithmetic intensity, with what bounds it",
}


@dataclass(frozen=True, slots=True)
class Pitfall:
    """Two configurations of `kernel` that differ in one `mistake`: what it costs, and how it shows.

    `spoiled` and `sound` are the parameters that tell the two apart. `counter` names the figure that shows the
    mistake: one of a profile's (`python -m sweeper.profile`), or `stall_` and the reason why warps wait.
    `static` names a column of `trials.csv` that shows it without a profiler, empty where none does. `look`
    says in words what to look for.
    """

    mistake: str = ""
    kernel: str = ""
    spoiled: Mapping[str, Any] = field(default_factory=dict)
    sound: Mapping[str, Any] = field(default_factory=dict)
    counter: str = ""
    static: str = ""
    look: str = ""


def why_no_report(report: str | None, pitfalls: Sequence[Pitfall]) -> list[str]:
    """What is wrong with the keys `report` and `pitfalls`, a line each."""
    problems = []
    if report is not None and report not in REPORTS:
        known = ", ".join(REPORTS)
        problems.append(
            f"report = {report!r} is none of {known}{did_you_mean(report, REPORTS)}, or null for none"
        )
    if report == "pitfalls" and not pitfalls:
        problems.append("report = pitfalls, and pitfalls names none: say experiment=pitfalls, or list pairs")
    for place, pitfall in enumerate(pitfalls):
        blank = [name for name in ("mistake", "kernel", "spoiled", "sound") if not getattr(pitfall, name)]
        if blank:
            problems.append(f"pitfalls[{place}] has no {' and no '.join(blank)}")
        elif pitfall.spoiled == pitfall.sound:
            problems.append(f"pitfalls[{place}]: spoiled and sound are the same configuration")
    return problems
