"""Why is the best configuration the best: what each parameter explains, alone and together with others.

    for result in read_results(["results/h200/spaces/warp_tile-2048.csv.gz"]):
        for found in analyse_results(result):
            found.parameters[0].name, found.parameters[0].alone.value, found.neighbours

Pure functions of a table of trials; docs/importance.md says what each figure means.
"""

from __future__ import annotations

from sweeper.importance.analyse import analyse, analyse_groups, analyse_results
from sweeper.importance.model import (
    Importance,
    Level,
    Neighbour,
    Outcome,
    Pair,
    Parameter,
    Robustness,
    Share,
    Winner,
)
from sweeper.importance.recorded import declared_whole
from sweeper.importance.told import told

__all__ = [
    "Importance",
    "Level",
    "Neighbour",
    "Outcome",
    "Pair",
    "Parameter",
    "Robustness",
    "Share",
    "Winner",
    "analyse",
    "analyse_groups",
    "analyse_results",
    "declared_whole",
    "told",
]
