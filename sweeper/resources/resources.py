"""What a configuration asks of a target, in closed form: launch, occupancy, waves, predicted time.

`resources` is cheap enough to rank a whole space before anything is compiled. The parts are in
`geometry`, `occupancy`, `prediction` and `roofline`, whose public names are also here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sweeper.device import Target
from sweeper.expressions import Expression, Value
from sweeper.model import KernelSpec, Launch, Point
from sweeper.resources.geometry import (
    evaluate_launch,
    implicit_constraints,
    launch_derived,
    launch_of,
    point_scope,
    register_cap,
    scope_constants,
    why_not_launchable,
    why_unsupported,
)
from sweeper.resources.occupancy import Residency, residency
from sweeper.resources.prediction import BlockWork, predict
from sweeper.resources.roofline import gflops, percent_of_peak, percent_of_roofline, roofline_ms, suspect

__all__ = [
    "Residency",
    "Resources",
    "evaluate_launch",
    "gflops",
    "implicit_constraints",
    "launch_derived",
    "launch_of",
    "percent_of_peak",
    "percent_of_roofline",
    "register_cap",
    "residency",
    "resources",
    "roofline_ms",
    "scope_constants",
    "suspect",
    "why_not_launchable",
    "why_unsupported",
]


@dataclass(frozen=True, slots=True)
class Resources:
    """One configuration on one target.

    `registers` a thread are the compiler's, else the description's estimate, else None. `predicted_ms`
    is None where the work is unknown or not even one block fits (`blocks_per_sm` 0); `roofline_ms` is
    None where the problem's work is unknown. `limited_by` names what binds: compute, shared memory,
    L2, latency, DRAM or launch; or `unknown`, or the limit that no block fits into.
    """

    launch: Launch
    registers: int | None
    blocks_per_sm: int
    occupancy: float
    waves: float
    wave_efficiency: float
    predicted_ms: float | None
    roofline_ms: float | None
    limited_by: str


def resources(
    spec: KernelSpec,
    point: Point,
    dims: Mapping[str, int],
    target: Target,
    *,
    registers: int | None = None,
    flops: int | None = None,
    bytes: int | None = None,  # noqa: A002 - the name of the column
) -> Resources:
    """The resources of `spec` at `point`; `flops` and `bytes` are the problem's (compulsory traffic).

    Raises ConfigError as `launch_of` does, and ExpressionError for a work model without a value.
    """
    scope = point_scope(spec, point, dims, target)
    launch = evaluate_launch(spec.launch, scope, where=spec.name)
    estimate = _number(spec.model.registers, scope)
    wanted = registers if registers is not None else None if estimate is None else int(estimate)
    # An estimate above what a thread can have means spills, not a launch that fails.
    cap = register_cap(launch.threads, target)
    held = wanted if registers is not None or wanted is None else min(wanted, max(cap, 1))
    fill = residency(launch, target, held)
    roof = roofline_ms(flops, bytes, spec.dtype, target)
    predicted: float | None = None
    limited_by = fill.limited_by
    # Of a trip the launch is but a part, and no model here knows the bus.
    if fill.blocks_per_sm and spec.trip is None:
        spilled = max(0, wanted - cap) if wanted is not None and registers is None else 0
        work = _block_work(spec, scope, launch, target, spilled, flops, bytes)
        limited_by = "unknown"
        if work is not None:
            guess = predict(work, launch, fill, target, compulsory_bytes=bytes, floor_ms=roof or 0.0)
            predicted, limited_by = guess.time_ms, guess.limited_by
    return Resources(
        launch=launch,
        registers=wanted,
        blocks_per_sm=fill.blocks_per_sm,
        occupancy=fill.occupancy,
        waves=fill.waves,
        wave_efficiency=fill.wave_efficiency,
        predicted_ms=predicted,
        roofline_ms=roof,
        limited_by=limited_by,
    )


def _block_work(
    spec: KernelSpec,
    scope: Mapping[str, Value],
    launch: Launch,
    target: Target,
    spilled_registers: int,
    flops: int | None,
    bytes_: int | None,
) -> BlockWork | None:
    """The work model's figures; where it is silent, an equal share of the problem's. None: no figures."""
    model = spec.model
    block_flops = _number(model.flops, scope)
    block_bytes = _number(model.global_bytes, scope)
    if block_flops is None and flops is not None:
        block_flops = flops / launch.blocks
    if block_bytes is None and bytes_ is not None:
        block_bytes = bytes_ / launch.blocks
    if block_flops is None and block_bytes is None:
        return None
    return BlockWork(
        flops=block_flops or 0.0,
        l2_bytes=block_bytes or 0.0,
        shared_bytes=_number(model.shared_traffic_bytes, scope) or 0.0,
        steps=max(1.0, _number(model.steps, scope) or 1.0),
        rate=target.flops_per_clock_per_sm[spec.dtype.name],
        spilled_registers=spilled_registers,
    )


def _number(expression: Expression | None, scope: Mapping[str, Value]) -> float | None:
    return None if expression is None else float(expression.evaluate(scope))
