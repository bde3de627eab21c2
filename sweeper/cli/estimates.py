"""What is thought of a space's configurations before any of it is measured.

Times that were measured of the same parameters under other conditions (another shape, precision class or GPU), the
nearest first, and the static model's order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sweeper.device import DeviceIdentity, Target
from sweeper.errors import ConfigError
from sweeper.expressions import Value
from sweeper.model import KernelSpec, Point, Role
from sweeper.problem import resolve
from sweeper.recording import Recorded, read_recorded
from sweeper.resources.columns import predicted_times
from sweeper.search.complete import completed
from sweeper.space import Space

__all__ = ["Known", "estimates", "from_times", "recorded_estimates"]

Estimate = npt.NDArray[np.float64]

_MOST = 3
"""Tables that a search begins with: the nearest. More would crowd out what it finds out by itself."""
_LEAST_KNOWN = 4
_OTHER_DEVICE, _OTHER_DTYPE = 8.0, 4.0


@dataclass(frozen=True, slots=True)
class Known:
    """Times by row of a space: `measured` elsewhere, the nearest conditions first, and by the static model, if any."""

    measured: tuple[Estimate, ...] = ()
    static: tuple[Estimate, ...] = ()


def estimates(
    spec: KernelSpec,
    space: Space,
    dims: Mapping[str, int],
    target: Target,
    device: DeviceIdentity,
    learn_from: Sequence[str] = (),
    beside: Sequence[tuple[Mapping[str, int], Estimate]] = (),
) -> Known:
    """What the tables `learn_from` say, what was measured `beside` this at other sizes, and the static model.

    Raises StorageError for a file that is no recorded table, ConfigError for one that says nothing of this kernel.
    """
    found = [
        estimate
        for path in learn_from
        for estimate in recorded_estimates(spec, space, dims, device, Path(path))
    ]
    found += [(_distance(dims, others), estimate) for others, estimate in beside]
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
    says_something = len(np.unique(static[np.isfinite(static)])) > 1
    return Known(tuple(nearest), (static,) if says_something else ())


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
        # A parameter that came later stood at its default.
        default = spec.default_point.params
        estimate = from_times(space, (({**default, **row.params}, row.usable_ms) for row in rows))
        if estimate is not None:
            away = _distance(dims, dict(sizes))
            away += _OTHER_DTYPE * (dtype not in ("", spec.dtype.name))
            away += _OTHER_DEVICE * (name not in ("", device.name))
            found.append((away, estimate))
    if not found:
        raise ConfigError(
            f"search.learn_from: {path} has fewer than {_LEAST_KNOWN} configurations of {spec.name} in this space",
            hint="give tables of the same kernel with the same parameters",
        )
    return found


def from_times(space: Space, times: Iterable[tuple[Mapping[str, Value], float | None]]) -> Estimate | None:
    """Times by row of `space` from those of some configurations, None for one that failed; the rest is modelled.

    None where too few of them are of this space.
    """
    estimate = np.full(len(space), np.nan)
    for params, time in times:
        place = space.row(Point.of(params)) if set(params) == set(space.names) else None
        if place is not None:
            # What failed there is no favourite here.
            estimate[place] = math.inf if time is None else time
    if np.isfinite(estimate).sum() < min(_LEAST_KNOWN, len(space)):
        return None
    return completed(space, estimate)


def _distance(dims: Mapping[str, int], others: Mapping[str, int]) -> float:
    """Sum over the sizes of how many times one is doubled to reach the other."""
    shared = [name for name in dims if name in others]
    return sum(abs(math.log2(max(dims[name], 1) / max(others[name], 1))) for name in shared)
