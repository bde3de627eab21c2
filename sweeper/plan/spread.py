"""Jobs on GPUs: how long they take side by side, in the order that they are begun in."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from sweeper.plan.estimate import Estimated

__all__ = ["in_better_order", "longest_first", "makespan"]


def makespan(seconds: Sequence[float], side_by_side: int) -> float:
    """When the last of the jobs ends that take `seconds`, each begun in order as soon as a place is free.

    No order is quicker than (the greatest job, the sum over the places), and longest first is at most 4/3 - 1/(3m) of
    the best on m places (Graham 1969).
    """
    ends = [0.0] * max(1, side_by_side)
    for took in seconds:
        heapq.heapreplace(ends, ends[0] + took)
    return max(ends)


def longest_first(jobs: Sequence[Estimated]) -> list[Estimated]:
    """`jobs`, the longest first; equal ones stay in their order."""
    return sorted(jobs, key=lambda job: -job.wall.likely)


def in_better_order(jobs: Sequence[Estimated]) -> tuple[str, list[Estimated]] | None:
    """The lists of a multirun's command in the order that begins with the longest jobs, and the jobs in that order.

    A multirun has a job for each combination of its lists, so only the lists can be put in another order. None where
    they are no such product, or in that order already.
    """
    told = [_values(job.job.asked) for job in jobs]
    if not told or any(set(values) != set(told[0]) for values in told):
        return None
    lists = {key: list(dict.fromkeys(values[key] for values in told)) for key in told[0]}
    varied = {key: values for key, values in lists.items() if len(values) > 1}
    mean = {
        (key, value): _mean(
            [job.wall.likely for job, own in zip(jobs, told, strict=True) if own[key] == value]
        )
        for key, values in varied.items()
        for value in values
    }
    better = {key: sorted(values, key=lambda value: -mean[key, value]) for key, values in varied.items()}
    if better == varied:
        return None
    place = {(key, value): i for key, values in better.items() for i, value in enumerate(values)}
    ordered = sorted(
        zip(jobs, told, strict=True), key=lambda pair: [place[key, pair[1][key]] for key in varied]
    )
    return " ".join(f"{key}={','.join(values)}" for key, values in better.items()), [j for j, _ in ordered]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _values(asked: str) -> dict[str, str]:
    return {key: value for key, _, value in (word.partition("=") for word in asked.split())}
