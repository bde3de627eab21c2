"""Shape by variant: the best of each kernel at each problem, in percent of the library's speed or of the best's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sweeper.report.study import Problem
from sweeper.report.verdict import best_of, value
from sweeper.report.winner import Winner

__all__ = ["Cell", "Matrix", "matrix_of"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One kernel at one problem: `percent` of the library's speed, else of the fastest kernel's."""

    winner: Winner
    percent: float | None
    best: bool


@dataclass(frozen=True, slots=True)
class Matrix:
    """`cells[i][j]` is kernel j at problem i, None where it was not tried or nothing was valid.

    `of_library` says what 100 % is: the library's speed where any problem has one, else the fastest kernel's.
    """

    kernels: tuple[str, ...]
    cells: tuple[tuple[Cell | None, ...], ...]
    of_library: bool


def matrix_of(problems: Sequence[Problem], winners: Sequence[Sequence[Winner]]) -> Matrix:
    """The table of all problems; of several studies of a kernel at a problem, the best one."""
    kernels = tuple(dict.fromkeys(study.kernel for problem in problems for study in problem.studies))
    of_library = any(one.percent_of_library is not None for each in winners for one in each)
    return Matrix(kernels, tuple(_row(each, kernels, of_library) for each in winners), of_library)


def _row(winners: Sequence[Winner], kernels: tuple[str, ...], of_library: bool) -> tuple[Cell | None, ...]:
    top = best_of(winners)
    cells: list[Cell | None] = []
    for kernel in kernels:
        mine = best_of([one for one in winners if one.study.kernel == kernel])
        if mine is None or top is None:
            cells.append(None)
            continue
        share = mine.percent_of_library if of_library else 100 * value(top) / value(mine)
        cells.append(Cell(mine, share, mine is top))
    return tuple(cells)
