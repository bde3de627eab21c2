"""A dry run of one job: how many configurations there are, and which the static model likes best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sweeper.cli import terminal
from sweeper.device import Target
from sweeper.model import KernelSpec
from sweeper.problem import resolve
from sweeper.resources import resources
from sweeper.resources.columns import predicted_times
from sweeper.resources.feasible import feasible_space, looked_at, require_whole_launches

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["show_plan"]

_FAVOURITES = 10


def show_plan(spec: KernelSpec, dims: Mapping[str, int], shape: str, limits: Target, out: Console) -> int:
    """What would be searched, and the static model's favourites; nothing is built or run. Gives 0.

    `dims` are the problem's sizes and `shape` what they are called. Raises ConfigError and NoValidConfiguration as the
    search would.
    """
    space = feasible_space(spec, dims, limits)
    require_whole_launches(spec, space, dims, limits)
    problem = resolve(spec, dims, spec.default_point, seed=0)
    out.print(
        f"{spec.name} at {shape}: {len(space)} feasible of {space.product_size} configurations on {limits.name}"
    )
    rows = looked_at(space)
    times = predicted_times(
        spec,
        space.names,
        space.levels,
        space.indices[rows],
        dims,
        limits,
        flops=problem.flops,
        bytes=problem.bytes,
    )
    if spec.trip is None:
        # What has no time fits no block, unless its work model is at fault, which is told.
        for row in rows[np.isnan(times)]:
            resources(spec, space.point(int(row)), dims, limits, flops=problem.flops, bytes=problem.bytes)
    # In single precision what differs by a rounding error is a tie, and the first of equals stays the first.
    best = np.argsort(times.astype(np.float32), kind="stable")[:_FAVOURITES]
    for place in best[np.isfinite(times[best])]:
        shown = terminal.format_ms(float(times[place]))
        out.print(f"  {shown:>10} predicted  {space.point(int(rows[place]))}")
    return 0
