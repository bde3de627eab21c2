"""Rules on traffic: coalescing, bank conflicts, DRAM, L2, shared and local memory."""

from __future__ import annotations

from sweeper.profile.evidence import BUSY_PERCENT, MEMORY, Advice, Evidence, Rule
from sweeper.profile.figures import SECTOR_BYTES

__all__ = ["MEMORY_RULES"]


def uncoalesced_loads(e: Evidence) -> Advice | None:
    """More sectors a request than a coalesced word a lane takes, and less than half of each sector used."""
    return _uncoalesced(e, "load", "read")


def uncoalesced_stores(e: Evidence) -> Advice | None:
    """As of loads."""
    return _uncoalesced(e, "store", "write")


def _uncoalesced(e: Evidence, kind: str, verb: str) -> Advice | None:
    sectors, used = e[f"{kind}_sectors"], e[f"{kind}_bytes_per_sector"]
    if not (sectors > 4.5 and used < SECTOR_BYTES / 2):
        return None
    text = (
        f"{used:.1f} of {SECTOR_BYTES} bytes of each sector that {kind}s touch are used, {sectors:.1f} sectors a"
        f" request: neighbouring threads should {verb} neighbouring words"
    )
    return Advice("coalescing", text, e.most(*MEMORY) * (1 - used / SECTOR_BYTES))


def bank_conflicts(e: Evidence) -> Advice | None:
    """A tenth of the wavefronts or more, which a layout could save."""
    share = e["bank_conflict_percent"]
    if not share >= 10:
        return None
    ways = e.most("shared_load_ways", "shared_store_ways")
    # Four are what 16 bytes a lane take without any conflict.
    seen = f", {ways:.1f} wavefronts a request" if ways > 4.5 else ""
    text = (
        f"bank conflicts add {share:.0f} % of shared memory's wavefronts{seen}: pad rows by a word, or permute"
        " (swizzle) columns by row"
    )
    return Advice("shared memory", text, e["l1_percent"] * share / 100)


def excess_dram_traffic(e: Evidence) -> Advice | None:
    """Half as much again as must move, on a memory that is busy enough to matter."""
    excess, busy = e["dram_per_compulsory"], e["dram_percent"]
    if not (excess >= 1.5 and busy >= 30):
        return None
    text = (
        f"DRAM moves {excess:.1f} times the compulsory bytes and is {busy:.0f} % busy: larger tiles, or an order of"
        " blocks in which neighbours share operands in L2"
    )
    return Advice("DRAM", text, busy * (1 - 1 / excess))


def memory_bound(e: Evidence) -> Advice | None:
    """DRAM is busy with hardly more than what must move."""
    excess, busy = e["dram_per_compulsory"], e["dram_percent"]
    if not (busy >= BUSY_PERCENT and excess < 1.5):
        return None
    text = (
        f"DRAM is {busy:.0f} % busy with little more than the compulsory bytes: only less data helps, by a narrower"
        " type or by fusing kernels"
    )
    return Advice("DRAM", text, busy / 2)


def l2_bound(e: Evidence) -> Advice | None:
    """L2 is the busy one: what SMs fetch falls with the side of a block's tile."""
    busy = e["l2_percent"]
    if not (busy >= BUSY_PERCENT and busy >= e.most("dram_percent")):
        return None
    return Advice(
        "L2", f"L2 is {busy:.0f} % busy: what it delivers falls as 1 / the side of a block's tile", busy / 2
    )


def shared_bound(e: Evidence) -> Advice | None:
    """The L1 and shared-memory path is the busy one, without conflicts that would explain it."""
    busy, share = e["l1_percent"], e.figures.get("bank_conflict_percent", 0.0)
    if not (busy >= BUSY_PERCENT and share < 10):
        return None
    text = (
        f"the L1 and shared-memory path is {busy:.0f} % busy: keep more operands in registers (a larger tile a"
        " thread), and read four words at a time"
    )
    return Advice("shared memory", text, busy / 2)


def spills(e: Evidence) -> Advice | None:
    """Local memory is in use at all: it goes through L1 like any load."""
    requests = e["local_requests"]
    if not requests > 0:
        return None
    text = (
        f"{requests:,.0f} loads and stores of local memory: registers spill, or an array is indexed by what the"
        " compiler does not know; a smaller tile a thread, or full unrolling"
    )
    return Advice("shared memory", text, e.most(*MEMORY) / 4)


MEMORY_RULES: tuple[Rule, ...] = (
    uncoalesced_loads,
    uncoalesced_stores,
    bank_conflicts,
    excess_dram_traffic,
    memory_bound,
    l2_bound,
    shared_bound,
    spills,
)
