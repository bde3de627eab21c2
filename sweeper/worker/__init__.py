"""The only process that owns a device, and the parent's side of it."""

from __future__ import annotations
