"""The configurations of a kernel that can run at a problem's sizes on a target."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from sweeper.device import Target
from sweeper.errors import ConfigError, ExpressionError, NoValidConfiguration
from sweeper.model import KernelSpec
from sweeper.resources.columns import whole_launches
from sweeper.resources.geometry import (
    implicit_constraints,
    launch_derived,
    launch_of,
    scope_constants,
    why_unsupported,
)
from sweeper.space import Space, build_space

__all__ = ["feasible_space", "looked_at", "require_whole_launches"]

_LOOKED_AT = 4096


def feasible_space(spec: KernelSpec, dims: Mapping[str, int], limits: Target) -> Space:
    """Every configuration that `limits` and the kernel's own constraints allow at `dims`.

    Raises NoValidConfiguration, with the constraint that removes most, where there is none.
    """
    unsupported = why_unsupported(spec, dims, limits)
    if unsupported:
        raise NoValidConfiguration(unsupported)
    return build_space(
        spec.params,
        (*implicit_constraints(limits), *spec.constraints),
        scope_constants(spec, dims, limits),
        launch_derived(spec),
    )


def require_whole_launches(spec: KernelSpec, space: Space, dims: Mapping[str, int], limits: Target) -> None:
    """Raise ConfigError where a configuration's block or grid is no whole number, before any is built.

    Of a very large space, evenly spaced configurations are looked at.
    """
    rows = looked_at(space)
    sure = whole_launches(spec, space.names, space.levels, space.indices[rows], dims, limits)
    for row in rows[~sure]:
        point = space.point(int(row))
        try:
            launch_of(spec, point, dims, limits)
        except ExpressionError as error:
            raise ConfigError(f"{spec.name} with {point}: {error.message}", hint=error.hint) from None


def looked_at(space: Space) -> npt.NDArray[np.int64]:
    """All rows of a space, or evenly spaced ones of a very large one."""
    return np.arange(0, len(space), max(1, len(space) // _LOOKED_AT))
