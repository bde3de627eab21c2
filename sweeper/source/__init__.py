"""A kernel's source as tokens: what it includes, declares and needs."""

from __future__ import annotations
