"""What a launch should do by arithmetic and the static model: what counters are held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sweeper.device import Target
from sweeper.expressions import Expression, Value
from sweeper.model import Build, Launch
from sweeper.problem import resolve
from sweeper.profile.job import Job
from sweeper.resources import residency, roofline_ms
from sweeper.resources.geometry import evaluate_launch, point_scope
from sweeper.resources.prediction import BlockWork, dram_bytes

__all__ = ["Expected", "expect"]


@dataclass(frozen=True, slots=True)
class Expected:
    """`flops` of the problem and `compulsory_bytes` (every input once, every output once); what the kernel's
    `model` says of its traffic, in bytes a launch: L2 to SMs, DRAM, shared memory to registers; the
    occupancy that the limits allow, 0 to 1, with what runs out first; the roofline's time.

    None where nobody knows: a library's kernel has no model. `sm_count` is the device's.
    """

    flops: int | None
    compulsory_bytes: int
    roofline_ms: float | None
    sm_count: int
    model_l2_bytes: float | None = None
    model_dram_bytes: float | None = None
    model_shared_bytes: float | None = None
    occupancy: float | None = None
    occupancy_limit: str = ""


def expect(job: Job, limits: Target, build: Build | None) -> Expected:
    """What `job` should do on `limits`; `build` is None for a library's kernel.

    Raises ConfigError as `launch_of` does.
    """
    problem = resolve(job.spec, job.dims, job.point, seed=job.seed)
    flops, compulsory = problem.flops, problem.bytes
    roof = roofline_ms(flops, compulsory, job.spec.dtype, limits)
    if build is None:
        return Expected(flops, compulsory, roof, limits.sm_count)
    scope = point_scope(job.spec, job.point, job.dims, limits)
    launch = evaluate_launch(job.spec.launch, scope, where=job.spec.name)
    if build.static_shared_bytes is not None:
        launch = replace(launch, static_shared_bytes=build.static_shared_bytes)
    fill = residency(launch, limits, build.registers)
    fetched = _total(job.spec.model.global_bytes, scope, launch)
    dram = None
    if fetched is not None and fill.blocks_per_sm:
        work = BlockWork(flops=0.0, l2_bytes=fetched / launch.blocks, shared_bytes=0.0, steps=1.0, rate=1.0)
        dram = dram_bytes(work, launch, fill, limits, compulsory)
    return Expected(
        flops=flops,
        compulsory_bytes=compulsory,
        roofline_ms=roof,
        sm_count=limits.sm_count,
        model_l2_bytes=fetched,
        model_dram_bytes=dram,
        model_shared_bytes=_total(job.spec.model.shared_traffic_bytes, scope, launch),
        occupancy=fill.occupancy,
        occupancy_limit=fill.limited_by,
    )


def _total(expression: Expression | None, scope: Mapping[str, Value], launch: Launch) -> float | None:
    """A block's figure times the blocks of the grid."""
    return None if expression is None else float(expression.evaluate(scope)) * launch.blocks
