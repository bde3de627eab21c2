"""Static time model: what a launch should take, from what one block does and what an SM can do at once.

For ranking configurations before they are compiled; not a time to quote. A block works in
barrier-separated steps. In each step the multiprocessor computes, moves data between shared memory and
registers, and fetches from L2; R resident blocks share its rates, and one block alone cannot go through
a step faster than a memory latency plus its own work (Little's law: with too few blocks in flight the
latency shows). A wave is as many blocks as the device holds; the last, partly filled wave runs with
fewer blocks an SM. Beside all that, DRAM must deliver what L2 does not hold.

    step  = max( R·‖compute, shared, l2‖₂ + barrier , latency + compute + shared + l2 )  cycles
    waves = Σ (steps · step + start-up)                                                  cycles
    time  = max( waves / clock , dram bytes / bandwidth , roofline ) + launch

The 2-norm stands between full overlap (the maximum) and none (the sum). Rates are the target's
(`device`, `products`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sweeper.device import Target
from sweeper.model import Launch
from sweeper.resources.occupancy import Residency

__all__ = ["LAUNCH_MS", "START_UP_CYCLES", "BlockWork", "Prediction", "dram_bytes", "predict", "step_cycles"]

Floats = npt.NDArray[np.float64]

# Cycles from a load to its data past L1: between an L2 hit and a DRAM access on Volta to Hopper (Jia et
# al., 2018; Luo et al., 2024: some 270 and 600).
_LATENCY_CYCLES = 600.0
# A block's launch, address arithmetic and final stores, which nothing in the same wave hides.
START_UP_CYCLES = 500.0
# From the end of one kernel to the first instruction of the next on a busy stream.
LAUNCH_MS = 2e-3
# Draining the pipelines at a barrier.
_BARRIER_CYCLES = 30.0
# How whole spaces are ranked best: fitted to what was recorded of the register and warp tiles on an H200. As times
# these are too long, since kernels do overlap some of it; as an order they tell tiles that load less from those that
# load more, which the 2-norm hides behind the arithmetic.
_RANKING_BARRIER_CYCLES = 200.0
_RANKING_L2 = 2.0
# One warp a scheduler keeps the arithmetic pipes full where a thread has independent operations.
_WARPS_FOR_FULL_RATE = 4


@dataclass(frozen=True, slots=True)
class BlockWork:
    """What one block does: FLOP, bytes from L2, bytes through shared memory, barrier-separated steps.

    `rate` is the FLOP a clock and SM that its precision class can reach; `spilled_registers` a thread
    do not fit and go through L1 once a step, out and back.
    """

    flops: float
    l2_bytes: float
    shared_bytes: float
    steps: float
    rate: float
    spilled_registers: int = 0


@dataclass(frozen=True, slots=True)
class Prediction:
    """`limited_by`: compute, shared memory, L2, latency, DRAM or launch."""

    time_ms: float
    limited_by: str


@dataclass(frozen=True, slots=True)
class _Step:
    """Cycles of one step of one block, at an SM's full rates."""

    compute: float
    shared: float
    l2: float

    def alone(self, warps: int) -> float:
        """Cycles that one block needs when it has the SM to itself."""
        return _LATENCY_CYCLES + self.compute / _fill(warps) + self.shared + self.l2

    def together(self, resident: int, warps: int) -> float:
        """Cycles of the SM for one step of `resident` blocks."""
        compute = self.compute / _fill(resident * warps)
        return resident * math.hypot(compute, self.shared, self.l2) + _BARRIER_CYCLES

    def cycles(self, resident: int, warps: int) -> float:
        return max(self.together(resident, warps), self.alone(warps))

    def limited_by(self, resident: int, warps: int) -> str:
        if self.alone(warps) >= self.together(resident, warps):
            return "latency"
        terms = {"compute": self.compute, "shared memory": self.shared, "L2": self.l2}
        return max(terms, key=terms.__getitem__)


def _fill(warps: int) -> float:
    return min(1.0, warps / _WARPS_FOR_FULL_RATE)


def predict(
    work: BlockWork,
    launch: Launch,
    residency: Residency,
    target: Target,
    *,
    compulsory_bytes: float | None,
    floor_ms: float,
) -> Prediction:
    """The time of `launch`, never below `floor_ms`. `residency` must hold at least one block."""
    warps, resident, sms = residency.warps, residency.blocks_per_sm, target.sm_count
    spill_bytes = 2 * 4 * work.spilled_registers * launch.threads
    step = _Step(
        work.flops / work.steps / work.rate,
        (work.shared_bytes / work.steps + spill_bytes) / target.shared_bytes_per_clock_per_sm,
        work.l2_bytes / work.steps / target.l2_bytes_per_clock_per_sm,
    )
    full_waves, rest = divmod(launch.blocks, resident * sms)
    last = -(-rest // sms)
    cycles = full_waves * (work.steps * step.cycles(resident, warps) + START_UP_CYCLES)
    if last:
        cycles += work.steps * step.cycles(last, warps) + START_UP_CYCLES
    times = {
        step.limited_by(resident if full_waves else last, warps): cycles / (target.clock_mhz * 1e3),
        "DRAM": dram_bytes(work, launch, residency, target, compulsory_bytes) / (target.bandwidth_gbs * 1e6),
        "launch": LAUNCH_MS,
    }
    limited_by = max(times, key=times.__getitem__)
    return Prediction(max(times[limited_by], floor_ms) + LAUNCH_MS, limited_by)


def dram_bytes(
    work: BlockWork, launch: Launch, residency: Residency, target: Target, compulsory_bytes: float | None
) -> float:
    """Bytes past L2: the compulsory ones where the problem fits there, else what one wave cannot share.

    S resident blocks on a square patch of a two-dimensional output read each operand tile √S times
    over, of which L2 serves all but one; without reuse between blocks, the compulsory bytes are all.
    """
    total = work.l2_bytes * launch.blocks
    if compulsory_bytes is None:
        compulsory_bytes = 0.0 if total <= target.l2_bytes else total
    if compulsory_bytes <= target.l2_bytes:
        return compulsory_bytes
    at_once = min(launch.blocks, residency.blocks_per_sm * target.sm_count)
    return max(compulsory_bytes, total / math.sqrt(at_once))


def step_cycles(
    compute: Floats, shared: Floats, l2: Floats, resident: Floats, warps: Floats, *, ranking: bool = False
) -> Floats:
    """`_Step.cycles` on columns: one step of `resident` blocks of `warps` each, from one block's cycles.

    For `ranking` nothing overlaps, a barrier drains for longer, and L2 serves half its rate.
    """
    filled = np.minimum(1.0, resident * warps / _WARPS_FOR_FULL_RATE)
    alone = _LATENCY_CYCLES + compute / np.minimum(1.0, warps / _WARPS_FOR_FULL_RATE) + shared + l2
    if ranking:
        together = resident * (compute / filled + shared + _RANKING_L2 * l2) + _RANKING_BARRIER_CYCLES
    else:
        together = resident * np.sqrt((compute / filled) ** 2 + shared**2 + l2**2) + _BARRIER_CYCLES
    return np.asarray(np.maximum(together, alone))
