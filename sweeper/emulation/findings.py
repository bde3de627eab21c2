"""What a checked launch found wrong with a kernel, and where: both sides of it, with thread, block and line.

A race is two accesses of different threads, one of them a write, with nothing between that orders them, whatever
came of it in this launch: two writes of the same value are one. Within a block `__syncthreads` orders, and for
the lanes that take part `__syncwarp` and every warp-wide operation. Atomic operations are no race among
themselves but are with plain accesses. Between blocks, and where there is no barrier, only a fence orders: what
a thread did (and what its block did before its last barrier) before a `__threadfence` that is followed by an
atomic operation, or a write through volatile, on a flag comes before what is done after an atomic operation or a
read through volatile on that flag. In shared memory volatile counts for nothing.

What is not found: a read of a register, of a local array or of global memory that nobody wrote; an index beyond
a local array through a pointer; a shared array's end overrun into another one by more than its own size (at
least 1 KiB, at most 16); what depends on data, sizes or an order of blocks that was not launched. Accesses
through `float4` and its like that are not aligned are found in modules of g++ only, and so is which `return` a
thread left by.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Finding", "FindingKind", "Place"]


class FindingKind(StrEnum):
    """What is wrong."""

    OUT_OF_BOUNDS = "out_of_bounds"  # global or shared memory that belongs to no array
    MISALIGNED = "misaligned"
    READ_ONLY = "read_only"  # a write to an input
    RACE_SHARED = "race_shared"
    RACE_GLOBAL = "race_global"
    UNINITIALISED = "uninitialised"  # shared memory, or empty scratch, that nobody has written
    PENDING_COPY = "pending_copy"  # the destination of an asynchronous copy before it was waited for
    BARRIER_DIVERGENCE = "barrier_divergence"
    BARRIER_AFTER_EXIT = "barrier_after_exit"
    DEADLOCK = "deadlock"
    WARP_MASK = (
        "warp_mask"  # a warp-wide operation in a lane that its mask leaves out, or with a lane that is gone
    )
    INDEX_RANGE = "index_range"  # beyond one dimension of an array with a declared extent
    OVERFLOW = "overflow"  # signed arithmetic, a shift by too much, a division by zero
    ASSERT = "assert"
    TRAP = "trap"
    LAUNCH = "launch"  # a grid, block or amount of shared memory that no device takes
    NOT_EMULABLE = "not_emulable"  # nothing was found out: the kernel uses what only a GPU has


@dataclass(frozen=True, slots=True)
class Place:
    """A line of source, and who ran it: indices, or None where nobody in particular did.

    `file` is a name without folders, or `?` where the module cannot tell; `line` counts from 1, 0 where
    nobody knows it.
    """

    file: str
    line: int
    thread: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}"
        who = [f"{name} {index}" for name, index in (("thread", self.thread), ("block", self.block)) if index]
        return f"{where} by {' of '.join(who)}" if who else where


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, as often as it happened at this place (these two places).

    `first` is where it was noticed, with the first thread that did; `second` is the other side: the
    access that a race is with, the copy that is pending, a thread that waits elsewhere. `memory` names
    what was accessed: `A[12, 5]`, `shared a_tile[3][17]`, `dynamic shared+0x40`; it is empty where no
    memory is concerned.
    """

    kind: FindingKind
    message: str
    first: Place
    second: Place | None = None
    memory: str = ""
    count: int = 1
