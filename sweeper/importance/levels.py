"""Time against each parameter: what was tried of every level, whatever the others were."""

from __future__ import annotations

import numpy as np

from sweeper.importance.configurations import Configurations
from sweeper.importance.model import Level

__all__ = ["levels_of"]


def levels_of(found: Configurations, parameter: int, winner: int | None) -> tuple[Level, ...]:
    """The levels of one parameter in order, those that were not tried left out."""
    codes, valid = found.codes[:, parameter], found.valid
    least = float(found.values[valid].min()) if valid.any() else None
    levels = []
    for code, value in enumerate(found.levels[parameter]):
        tried = codes == code
        own = found.values[tried & valid]
        best = float(own.min()) if own.size else None
        if tried.any():
            levels.append(
                Level(
                    value=value,
                    tried=int(tried.sum()),
                    valid=len(own),
                    best=best,
                    median=float(np.median(own)) if own.size else None,
                    of_best=best / least if best is not None and least is not None else None,
                    winner=winner is not None and int(codes[winner]) == code,
                )
            )
    return tuple(levels)
