"""What a whole command comes to beside its merged table: a course of rungs, or pairs of a mistake and its remedy."""

from __future__ import annotations

from sweeper.lessons.settings import REPORTS, Pitfall, why_no_report

__all__ = ["REPORTS", "Pitfall", "why_no_report"]
