"""Two results against each other: which rows are faster, slower, the same, and how sure that is."""

from __future__ import annotations

from sweeper.compare.api import Change, Compared, Comparison, Unlike, compare, compare_rows
from sweeper.compare.ratio import BETWEEN_RUNS, Estimate, Ratio
from sweeper.compare.row import Row
from sweeper.compare.settings import MATCH, Filter, Settings

__all__ = [
    "BETWEEN_RUNS",
    "MATCH",
    "Change",
    "Compared",
    "Comparison",
    "Estimate",
    "Filter",
    "Ratio",
    "Row",
    "Settings",
    "Unlike",
    "compare",
    "compare_rows",
]
