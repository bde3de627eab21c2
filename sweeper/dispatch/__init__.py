"""Which kernel and configuration to take for a shape, precision class and layout, from recorded tables."""

from __future__ import annotations

from sweeper.dispatch.api import Answer, Dispatcher, best

__all__ = ["Answer", "Dispatcher", "best"]
