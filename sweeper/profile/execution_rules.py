"""Rules on execution: lanes, warps and waves, arithmetic pipes, and what warps wait for."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sweeper.profile.evidence import ARITHMETIC, BUSY_PERCENT, Advice, Evidence, Rule

__all__ = ["EXECUTION_RULES", "WAITS"]


def idle_tensor_cores(e: Evidence) -> Advice | None:
    """A precision class with tensor-core instructions, and none to speak of executed."""
    if not (e.tensor_class and e["tensor_pipe_percent"] < 2):
        return None
    text = f"tensor cores are idle though they multiply {e.tensor_class}: use mma or wgmma"
    return Advice("pipes", text, 90.0)


def divergence(e: Evidence) -> Advice | None:
    """A quarter of the lanes idle in the average instruction."""
    lanes = e["threads_per_instruction"]
    if not lanes < 24:
        return None
    text = (
        f"{lanes:.1f} of 32 lanes are active in an instruction: let whole warps take a branch, and give blocks whole"
        " warps"
    )
    return Advice("divergence", text, e["issue_percent"] * (1 - lanes / 32))


def small_grid(e: Evidence) -> Advice | None:
    """Fewer blocks than SMs: some have nothing to do from the start."""
    blocks = e["blocks_per_sm"]
    if not blocks < 0.9:
        return None
    text = f"{100 * (1 - blocks):.0f} % of the SMs get no block: smaller tiles, or a split of K over blocks"
    return Advice("occupancy", text, 100 * (1 - blocks))


def tail(e: Evidence) -> Advice | None:
    """Blocks do not divide evenly by SMs, and there are too few for that to drown."""
    blocks = e["blocks_per_sm"]
    if not blocks >= 0.9:
        return None
    whole = max(1, math.ceil(blocks))
    lost = 100 * (1 - blocks / whole)
    if lost < 15:
        return None
    text = (
        f"{blocks:.2f} blocks an SM take the time of {whole}: a tile size whose blocks divide by the SMs, or a"
        " persistent kernel"
    )
    return Advice("occupancy", text, lost)


def low_occupancy(e: Evidence) -> Advice | None:
    """Few resident warps, and idle issue slots that more of them could fill."""
    achieved, limit, waves = e["occupancy_percent"], e["occupancy_limit_percent"], e["waves"]
    if not (achieved <= 25 and e.idle_percent >= 40 and e.most(*ARITHMETIC) < BUSY_PERCENT):
        return None
    if waves < 0.9 and limit > 25:
        why = f"the grid fills {100 * waves:.0f} % of the places for blocks"
    else:
        why = f"{limit:.0f} % at most" + (f", limited by {e.occupancy_limit}" if e.occupancy_limit else "")
    text = (
        f"occupancy is {achieved:.0f} % ({why}) and {e.idle_percent:.0f} % of the issue slots are idle: more warps, or"
        " more independent instructions in each"
    )
    return Advice("occupancy", text, e.idle_percent * (1 - achieved / 100) / 2)


def uneven_work(e: Evidence) -> Advice | None:
    """Achieved occupancy far below the theoretical: warps end early, or blocks start late."""
    achieved, limit, waves = e["occupancy_percent"], e["occupancy_limit_percent"], e["waves"]
    if not (waves >= 1 and achieved < 0.7 * limit):
        return None
    text = (
        f"{achieved:.0f} % of the warps are resident where {limit:.0f} % could be: work is uneven between warps or"
        " blocks, or blocks are too short"
    )
    return Advice("occupancy", text, 50 * (1 - achieved / limit))


def few_multiply_adds(e: Evidence) -> Advice | None:
    """The issue slots are full, of instructions that mostly are no arithmetic."""
    share, issue = e["fma_percent"], e["issue_percent"]
    if not (issue >= 50 and 0 < share < 60 and e.most("tensor_pipe_percent") < 5):
        return None
    text = (
        f"{share:.0f} % of the instructions are multiply-adds: a larger tile a thread and wider loads leave more"
        " slots to them"
    )
    return Advice("issue", text, issue * (1 - share / 100))


def arithmetic_bound(e: Evidence) -> Advice | None:
    """An arithmetic pipe is near its peak."""
    busy = e.most(*ARITHMETIC)
    if busy < 80:
        return None
    text = f"an arithmetic pipe is {busy:.0f} % busy: the kernel is near what the device can compute"
    return Advice("pipes", text, 100 - busy)


WAITS: Mapping[str, str] = {
    "long_scoreboard": "for global memory: load the next tile while this one is used, more loads in flight a thread",
    "short_scoreboard": "for shared memory: read fragments one step ahead, four words at a time",
    "mio_throttle": "for a place in the shared-memory queue: fewer, wider shared loads, more reuse in registers",
    "lg_throttle": "for a place in the global-memory queue: fewer, wider loads (four words a thread)",
    "barrier": "at __syncthreads: more blocks an SM, several buffers of tiles, or fewer barriers",
    "math_pipe_throttle": "for a busy arithmetic pipe: little is lost but to fewer instructions",
    "wait": "for the fixed latency of the instruction before: more independent instructions a thread",
    "dispatch_stall": "for the dispatcher: operands in one register bank; another order of the multiply-adds",
    "no_instruction": "for instructions: a shorter loop body, less unrolling",
    "imc_miss": "for constants: fewer indexed constants and kernel arguments in the loop",
    "drain": "for stores to finish at the end: coalesced stores, more work a block",
    "membar": "for a memory fence: a weaker one, or none, in the inner loop",
    "branch_resolving": "for branch targets: unrolled loops, fewer branches",
    "tex_throttle": "for the texture queue: fewer texture and surface instructions in a row",
    "sleeping": "in nanosleep: poll less often",
    "gmma": "for wgmma to take its operands: more stages in flight, a consumer more",
}


def waiting(e: Evidence) -> Advice | None:
    """The commonest reason why warps wait, where a quarter of the issue slots or more are idle."""
    reasons = [(reason, share) for reason, share in e.stalls.items() if reason in WAITS]
    if not reasons or e.idle_percent < 25:
        return None
    reason, share = reasons[0]
    text = f"warps spend {share:.0f} % of their time waiting {WAITS[reason]}"
    return Advice("issue", text, share * e.idle_percent / 100)


EXECUTION_RULES: tuple[Rule, ...] = (
    idle_tensor_cores,
    divergence,
    small_grid,
    tail,
    low_occupancy,
    uneven_work,
    few_multiply_adds,
    arithmetic_bound,
    waiting,
)
