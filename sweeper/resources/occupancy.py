"""Resident blocks and warps on one multiprocessor, in closed form.

The rules are those of NVIDIA's CUDA Occupancy Calculator; the driver's answer differs only where a
kernel asks for a shared-memory carve-out of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from sweeper.device import Target
from sweeper.model import Launch

__all__ = ["Residency", "residency"]

_PARTITIONS = 4
_REGISTERS_PER_WARP_UNIT = 256


@dataclass(frozen=True, slots=True)
class Residency:
    """How a launch fills the device.

    `blocks_per_sm` can be resident on an SM at once (0: not even one fits), `occupancy` is their share
    of the warps an SM can hold, `waves` is blocks over resident blocks, `wave_efficiency` is `waves`
    over the whole number of waves it takes, and `limited_by` names what ran out first.
    """

    warps: int
    blocks_per_sm: int
    occupancy: float
    waves: float
    wave_efficiency: float
    limited_by: str


def residency(launch: Launch, target: Target, registers: int | None = None) -> Residency:
    """The residency of `launch`; without `registers` they are taken to be no limit."""
    warps = -(-launch.threads // target.warp_size)
    limits = {
        "threads": target.max_threads_per_sm // (warps * target.warp_size),
        "blocks": target.max_blocks_per_sm,
        "shared memory": _by_shared_memory(launch, target),
        "registers": _by_registers(warps, target, registers),
    }
    limited_by = min(limits, key=limits.__getitem__)
    resident = limits[limited_by]
    if resident == 0:
        return Residency(warps, 0, 0.0, 0.0, 0.0, limited_by)
    waves = launch.blocks / (resident * target.sm_count)
    return Residency(
        warps=warps,
        blocks_per_sm=resident,
        occupancy=resident * warps * target.warp_size / target.max_threads_per_sm,
        waves=waves,
        wave_efficiency=waves / -(-launch.blocks // (resident * target.sm_count)),
        limited_by=limited_by,
    )


def _by_shared_memory(launch: Launch, target: Target) -> int:
    """A block takes what it declares and what the system reserves, in units of 128 B (256 B before 8.0)."""
    total = launch.static_shared_bytes + launch.shared_bytes
    if total > target.max_shared_bytes:
        return 0
    unit = 128 if target.cc >= (8, 0) else 256
    taken = -(-(total + target.reserved_shared_bytes) // unit) * unit
    return target.shared_bytes_per_sm // taken if taken else target.max_blocks_per_sm


def _by_registers(warps: int, target: Target, registers: int | None) -> int:
    """Registers go to whole warps in units of 256, from the quarter that the warp's sub-partition has."""
    if not registers:
        return target.max_blocks_per_sm
    if registers > target.max_registers_per_thread:
        return 0
    unit = _REGISTERS_PER_WARP_UNIT
    each = -(-registers * target.warp_size // unit) * unit
    warps_per_partition = target.registers_per_sm // _PARTITIONS // each
    if -(-warps // _PARTITIONS) > warps_per_partition:
        return 0
    return _PARTITIONS * warps_per_partition // warps
