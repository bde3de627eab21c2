"""Published results measured again from their provenance: which rows agree, and where the world is another one."""

from __future__ import annotations

from sweeper.reproduce.agreement import WIDEST, Agreement, Outcome, judge
from sweeper.reproduce.choose import ALL, BEST, Published, choose
from sweeper.reproduce.run import Reproduction
from sweeper.reproduce.work import Options, Work, work_of

__all__ = [
    "ALL",
    "BEST",
    "WIDEST",
    "Agreement",
    "Options",
    "Outcome",
    "Published",
    "Reproduction",
    "Work",
    "choose",
    "judge",
    "work_of",
]
