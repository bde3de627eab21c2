"""What of this machine a sweep can use, and how to mend what it cannot: `python -m sweeper.doctor`."""

from __future__ import annotations

from sweeper.doctor.examination import Examination, examine
from sweeper.doctor.finding import Finding, State

__all__ = ["Examination", "Finding", "State", "examine"]
