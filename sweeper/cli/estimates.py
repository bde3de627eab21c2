"""What is thought of a space's configurations before any of it is measured, the most trusted first.

Times that were recorded of the same parameters under other conditions (another shape, precision class or GPU), and
the static model's order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sweeper.device import DeviceIdentity, Target
from sweeper.errors import ConfigError
from sweeper.model import KernelSpec, Point, Role
from sweeper.problem import resolve
from sweeper.recording import Recorded, read_recorded
from sweeper.resources.columns import predicted_times
from sweeper.search.complete import completed
from sweeper.space import Space

__all__ = ["estimates", "recorded_estimates"]

Estimate = npt.NDArray[np.float64]

_MOST = 3
"""Tables that a search begins with: the nearest. More would crowd out what it finds out by itself."""
_LEAST_KNOWN = 4
_OTHER_DEVICE, _OTHER_DTYPE = 8.0, 4.0


def estimates(
    spec: KernelSpec,
    space: Space,
    dims: Mapping[str, int],
    target: Target,
    device: DeviceIdentity,
    learn_from: Sequence[str] = (),
) -> list[Estimate]:
    """Times by row of `space` from the tables `learn_from`, nearest conditions first, and from the static model.

    Raises StorageError for a file that is no recorded table, ConfigError for one that says nothing of this kernel.
    """
    found = [
        estimate
        for path in learn_from
        for estimate in recorded_estimates(spec, space, dims, device, Path(path))
    ]
    nearest = [estimate for _, estimate in sorted(found, key=lambda pair: pair[0])][:_MOST]
    problem = resolve(spec, dims, spec.default_point, seed=0)
    static = predicted_times(
        spec,
        space.names,
        space.levels,
        space.indices,
        dims,
        target,
        flops=problem.flops,
        bytes=problem.bytes,
        ranking=True,
    )
    return [*nearest, *([static] if len(np.unique(static[np.isfinite(static)])) > 1 else [])]


def recorded_estimates(
    spec: KernelSpec, space: Space, dims: Mapping[str, int], device: DeviceIdentity, path: Path
) -> list[tuple[float, Estimate]]:
    """How far each problem in the table at `path` is from this one, and its times by row of `space`.

    What was not recorded there is filled in by a model of what was. Raises ConfigError where the table has no
    configuration of `space`.
    """
    problems: dict[tuple[str, str, tuple[tuple[str, int], ...]], list[Recorded]] = {}
    for row in read_recorded(path):
        if row.role is Role.CANDIDATE and row.kernel in ("", spec.name):
            key = row.dtype, row.device, tuple(sorted(row.dims.items()))
            problems.setdefault(key, []).append(row)
    found = []
    for (dtype, name, sizes), rows in problems.items():
        estimate = np.full(len(space), np.nan)
        for row in rows:
            place = space.row(Point.of(row.params)) if set(row.params) == set(space.names) else None
            if place is not None:
                # What failed there is no favourite here.
                estimate[place] = math.inf if row.usable_ms is None else row.usable_ms
        if np.isfinite(estimate).sum() >= min(_LEAST_KNOWN, len(space)):
            away = _distance(dims, dict(sizes))
            away += _OTHER_DTYPE * (dtype not in ("", spec.dtype.name))
            away += _OTHER_DEVICE * (name not in ("", device.name))
            found.append((away, completed(space, estimate)))
    if not found:
        raise ConfigError(
            f"search.learn_from: {path} has fewer than {_LEAST_KNOWN} configurations of {spec.name} in this space",
            hint="give tables of the same kernel with the same parameters",
        )
    return found


def _distance(dims: Mapping[str, int], others: Mapping[str, int]) -> float:
    """Sum over the sizes of how many times one is doubled to reach the other."""
    shared = [name for name in dims if name in others]
    return sum(abs(math.log2(max(dims[name], 1) / max(others[name], 1))) for name in shared)
