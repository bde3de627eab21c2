"""What advice is made of: the evidence that rules look at, and what they return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["ARITHMETIC", "BUSY_PERCENT", "LATENCY", "MEMORY", "Advice", "Evidence", "Rule", "busiest"]

LATENCY = "latency"
BUSY_PERCENT = 60.0
"""A unit that is busy for less leaves the kernel bound by latency (Kernel Profiling Guide, speed of light)."""

_UNITS = {
    "dram_percent": "DRAM",
    "l2_percent": "L2",
    "l1_percent": "L1/shared",
    "fma_pipe_percent": "fp32 pipe",
    "fp64_pipe_percent": "fp64 pipe",
    "tensor_pipe_percent": "tensor cores",
    "issue_percent": "issue",
}
MEMORY = ("dram_percent", "l2_percent", "l1_percent")
ARITHMETIC = ("fma_pipe_percent", "fp64_pipe_percent", "tensor_pipe_percent")


@dataclass(frozen=True, slots=True)
class Advice:
    """`text` is one line; `about` the group of figures that it rests on; `stake` orders the lines."""

    about: str
    text: str
    stake: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the rules look at. `tensor_class` is the precision class where tensor cores could do the work,
    else empty; `occupancy_limit` what runs out first (`registers`, `shared memory`, `blocks`, `threads`)."""

    figures: Mapping[str, float]
    stalls: Mapping[str, float]
    occupancy_limit: str = ""
    tensor_class: str = ""

    def __getitem__(self, name: str) -> float:
        """The figure; NaN, which no threshold passes, where it could not be had."""
        return self.figures.get(name, float("nan"))

    def most(self, *names: str) -> float:
        return max((self.figures[name] for name in names if name in self.figures), default=0.0)

    @property
    def idle_percent(self) -> float:
        """Issue slots that nothing was issued in."""
        return 100.0 - self.figures.get("issue_percent", 100.0)


Rule = Callable[[Evidence], Advice | None]


def busiest(figures: Mapping[str, float]) -> str:
    """The unit that is fullest, with its share; `latency` where none is busy; empty where nothing is known."""
    known = {unit: figures[name] for name, unit in _UNITS.items() if name in figures}
    if not known:
        return ""
    unit = max(known, key=known.__getitem__)
    return f"{unit} {known[unit]:.0f} %" if known[unit] >= BUSY_PERCENT else LATENCY
