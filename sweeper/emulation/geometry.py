"""What a launch asks for, and what CUDA allows of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

__all__ = ["Geometry", "Limits", "Order"]


class Order(IntEnum):
    """In which order the threads of a block get their turn. A right kernel does not care."""

    FORWARD = 0
    REVERSE = 1
    SHUFFLED = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """What CUDA allows of a launch on one device (CUDA C++ Programming Guide, "Technical Specifications").

    `static_shared_bytes` is the most a source may declare itself, `shared_bytes` that plus dynamic.
    """

    threads: int = 1024
    block: tuple[int, int, int] = (1024, 1024, 64)
    grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    shared_bytes: int = 227 * 1024
    static_shared_bytes: int = 48 * 1024


@dataclass(frozen=True, slots=True)
class Geometry:
    """Blocks, threads a block, and bytes of dynamic and static shared memory a block."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    static_shared_bytes: int = 0

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    def broken_limit(self, limits: Limits) -> str | None:
        """The first limit that a device would refuse this launch for, with its value."""
        for kind, sizes, most in (("block", self.block, limits.block), ("grid", self.grid, limits.grid)):
            for axis, size, limit in zip("xyz", sizes, most, strict=True):
                if not 1 <= size <= limit:
                    return f"{kind} {axis} = {size} is not within 1 to {limit}"
        if self.threads > limits.threads:
            return f"threads {self.threads} > {limits.threads}"
        if self.shared_bytes < 0:
            return f"dynamic shared memory {self.shared_bytes} B < 0"
        total = self.shared_bytes + self.static_shared_bytes
        if total > limits.shared_bytes:
            return f"shared memory {total} B > {limits.shared_bytes} B"
        if self.static_shared_bytes > limits.static_shared_bytes:
            return f"static shared memory {self.static_shared_bytes} B > {limits.static_shared_bytes} B"
        return None
