"""PED-ANOVA: which parameters it takes to be among the best tenth.

The best are compared with all that were tried, parameter by parameter: the Pearson divergence between how often they
have each level, Σ p (q/p − 1)², a share of whose sum is the importance (Watanabe, Bansal and Hutter, IJCAI 2023).
Failed configurations are tried ones that are never among the best. Densities are those of levels, with one
observation's weight spread over all of them.

Optuna's evaluator smooths the densities more (a categorical level's kernel reaches all others), which evens its
shares out. It takes trials as objects, which at 20 000 are slower to make than all of this analysis, and has no
intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sweeper.importance.configurations import Floats, Indices

__all__ = ["best_tenth", "top_shares"]

_TOP, _LEAST = 0.1, 5


def best_tenth(values: Floats) -> Indices:
    """Places of the best tenth of the valid ones, five at least, with those that equal the last of them."""
    valid = np.sort(values[np.isfinite(values)])
    if not valid.size:
        return np.zeros(0, dtype=np.int64)
    last = valid[min(valid.size, max(_LEAST, math.ceil(_TOP * valid.size))) - 1]
    return np.flatnonzero(values <= last)


def top_shares(codes: Indices, counts: Sequence[int], values: Floats) -> Floats | None:
    """Each parameter's part, 1 in all; None where the best are as the rest. `values` are NaN where failed."""
    best = best_tenth(values)
    if not best.size:
        return None
    found = np.array(
        [_divergence(column[best], column, count) for column, count in zip(codes.T, counts, strict=True)]
    )
    whole = float(found.sum())
    return found / whole if whole > 1e-12 else None


def _divergence(best: Indices, tried: Indices, count: int) -> float:
    top, base = (
        (np.bincount(levels, minlength=count) + 1 / count) / (len(levels) + 1) for levels in (best, tried)
    )
    return float((base * (top / base - 1) ** 2).sum())
