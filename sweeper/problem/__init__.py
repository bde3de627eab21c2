"""A kernel's problem at given sizes: inputs from a seed, right results, and how far from them is still right."""

from __future__ import annotations

from sweeper.problem.ahead import InputsAhead
from sweeper.problem.problem import (
    Problem,
    ReferenceValues,
    ResolvedArray,
    ResolvedScalar,
    is_poison,
    poison,
    resolve,
)

__all__ = [
    "InputsAhead",
    "Problem",
    "ReferenceValues",
    "ResolvedArray",
    "ResolvedScalar",
    "is_poison",
    "poison",
    "resolve",
]
