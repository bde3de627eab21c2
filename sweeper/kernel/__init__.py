"""A kernel: its description and its source, held against each other before any compile."""

from __future__ import annotations

from sweeper.kernel.description import (
    load,
)

__all__ = [
    "load",
]
