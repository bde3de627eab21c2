"""What a GPU may do and which one it was: from a table, from a live device, and through NVML."""

from __future__ import annotations

from sweeper.device.target import (
    TARGETS,
    DeviceIdentity,
    Target,
    from_query,
    target,
)

__all__ = [
    "TARGETS",
    "DeviceIdentity",
    "Target",
    "from_query",
    "target",
]
