"""What a search may still gain."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["expected_gain", "expected_improvement"]

Floats = npt.NDArray[np.floating]
_LOOKED_AT = 64


def expected_gain(strategy: Any) -> float | None:
    """What `strategy` expects of its next point, relative to its best; None where it has no model to say."""
    say = getattr(strategy, "expected_gain", None)
    return None if say is None else say()


def expected_improvement(above: Floats, deviations: Floats) -> float:
    """The largest expectation of max(0, x) over normal variables x with means `above` and `deviations`.

    Only those that may be largest are looked at.
    """
    order = np.argsort(-(above + 2 * deviations), kind="stable")[:_LOOKED_AT]
    return max((_positive_part(float(above[i]), float(deviations[i])) for i in order), default=0.0)


def _positive_part(mean: float, deviation: float) -> float:
    if deviation <= 0:
        return max(mean, 0.0)
    z = mean / deviation
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return mean * (1 + math.erf(z / math.sqrt(2))) / 2 + deviation * density
