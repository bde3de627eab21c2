"""The feasible points of a kernel's parameters, built without ever materialising the raw product."""

from __future__ import annotations

from sweeper.space.space import (
    Space,
    build_space,
    space_of_points,
)

__all__ = [
    "Space",
    "build_space",
    "space_of_points",
]
