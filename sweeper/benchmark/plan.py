"""What a search benchmark consists of."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CHECKPOINTS", "KERNEL_TUNER", "BenchmarkConfig"]

CHECKPOINTS = (10, 25, 50, 100, 200)
"""Evaluations after which the tables say how far a search has come."""

KERNEL_TUNER = "kernel_tuner/"
"""Before the name of a strategy of Kernel Tuner's."""


@dataclass(frozen=True, slots=True)
class BenchmarkConfig:
    """Every strategy on every space with seeds 0 to `seeds` - 1, `evaluations` configurations each.

    `spaces` are paths of recorded tables, or patterns for them. `strategies` are searches of ours by name, and
    `kernel_tuner/NAME` for one of Kernel Tuner's. `lookahead` configurations are asked before the first is told,
    as in a search that compiles side by side; Kernel Tuner asks one at a time. `workers` processes share the work
    (0: one a processor).
    """

    spaces: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ("guided", "random")
    seeds: int = 30
    evaluations: int = 200
    lookahead: int = 1
    workers: int = 0
