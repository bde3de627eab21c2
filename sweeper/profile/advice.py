"""Rules from figures to one line of advice each, those first that have most time at stake.

A rule is a small function with its threshold and its reason. What it returns as `stake` is a bound by
simple arithmetic on how much of the time its remedy could win, in percent: it orders the lines, and is no
promise. Latency is hidden by more warps or by more independent instructions of each (Little's law; Volkov,
UCB/EECS-2016-143).
"""

from __future__ import annotations

from sweeper.profile.evidence import Advice, Evidence, Rule
from sweeper.profile.execution_rules import EXECUTION_RULES
from sweeper.profile.memory_rules import MEMORY_RULES

__all__ = ["RULES", "advise"]

RULES: tuple[Rule, ...] = (*MEMORY_RULES, *EXECUTION_RULES)


def advise(evidence: Evidence) -> tuple[Advice, ...]:
    """What the rules have to say, most at stake first; nothing where no rule applies."""
    found = [advice for rule in RULES if (advice := rule(evidence)) is not None]
    return tuple(sorted(found, key=lambda advice: -advice.stake))
