"""One configuration, or a few, that serve many shapes: which ones, and what the compromise costs."""

from __future__ import annotations

from sweeper.portfolio.cover import Choice, choose
from sweeper.portfolio.tables import Times, times_of

__all__ = ["Choice", "Times", "choose", "times_of"]
