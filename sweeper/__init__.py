"""Sweep and tune CUDA kernels: every configuration proved right, timed honestly, and recorded."""

from __future__ import annotations

__version__ = "0.1.0"
