"""Source and point to a compiled configuration: one file a compiler, one cache for all of them."""

from __future__ import annotations
