"""How configurations ended, and why those that failed did."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from sweeper.report.study import Problem
from sweeper.report.wording import configuration
from sweeper.table.ranking import status_counts

__all__ = ["Ending", "endings_of", "status_totals"]


@dataclass(frozen=True, slots=True)
class Ending:
    """So many configurations of `kernels` that ended alike: reasons that differ in numbers only are one."""

    status: str
    stage: str
    count: int
    reason: str
    example: str
    kernels: tuple[str, ...]


def endings_of(problems: Iterable[Problem]) -> list[Ending]:
    """What failed, the commonest first."""
    tables = [study.rows for problem in problems for study in problem.studies]
    tables = [rows[rows["status"] != "ok"] for rows in tables]
    tables = [rows for rows in tables if len(rows)]
    if not tables:
        return []
    found: dict[tuple[str, str, str], list[Ending]] = {}
    for rows in tables:
        kernel = str(rows["kernel"].iloc[0])
        for _, row in status_counts(rows).iterrows():
            reason = str(row["reason"] or "no reason given")
            key = str(row["status"]), str(row["stage"]), _shape_of(reason)
            example = configuration(str(row["params"]))
            found.setdefault(key, []).append(
                Ending(key[0], key[1], int(row["count"]), reason, example, (kernel,))
            )
    merged = [
        Ending(
            one[0].status,
            one[0].stage,
            sum(each.count for each in one),
            one[0].reason,
            one[0].example,
            tuple(dict.fromkeys(kernel for each in one for kernel in each.kernels)),
        )
        for one in found.values()
    ]
    return sorted(merged, key=lambda each: -each.count)


def status_totals(problems: Iterable[Problem]) -> dict[str, int]:
    """How many configurations ended how: ok first, then the commonest."""
    tables = [study.rows["status"] for problem in problems for study in problem.studies]
    if not tables:
        return {}
    counts = pd.concat(tables).value_counts()
    return {
        str(name): int(count) for name, count in sorted(counts.items(), key=lambda p: (p[0] != "ok", -p[1]))
    }


def _shape_of(reason: str) -> str:
    return "".join("#" if letter.isdigit() else letter for letter in reason)
