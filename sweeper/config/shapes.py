"""Several shapes that share one budget, and how much each counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["weighted_shapes"]


def weighted_shapes(node: Any, problems: list[str]) -> dict[str, float] | None:
    """Weights by name: of a list 1 each, of a mapping its own. What is neither is noted in `problems`."""
    if node is None:
        return None
    if isinstance(node, list | tuple):
        listed = [(name, 1.0) for name in node]
    elif isinstance(node, Mapping):
        listed = list(node.items())
    else:
        problems.append(f"shapes = {node!r} is not a list: write shapes=[{node}], or shapes={{{node}:1}}")
        return None
    weights: dict[str, float] = {}
    for name, weight in listed:
        if not isinstance(name, str):
            problems.append(f"shapes: {name!r} is no shape: write a name, or MxNxK such as 256x512x64")
        elif name in weights:
            problems.append(f"shapes: {name} is named twice")
        elif isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
            problems.append(f"shapes: the weight of {name} is {weight!r}, and not a positive number")
        else:
            weights[name] = float(weight)
    if not listed:
        problems.append("shapes is empty: write shapes=[small,256x512x64], or leave it out")
    return weights
