"""Results from many folders, stores and servers in one folder: `python -m sweeper.collect INTO FROM…`."""

from __future__ import annotations

from sweeper.collect.api import Collected, collect
from sweeper.collect.conflicts import Conflict

__all__ = ["Collected", "Conflict", "collect"]
