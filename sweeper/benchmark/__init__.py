"""Searches held against each other on recorded spaces: nothing is built or run, every answer is a recorded one."""

from __future__ import annotations

from sweeper.benchmark.plan import BenchmarkConfig

__all__ = ["BenchmarkConfig"]
