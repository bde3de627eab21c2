"""What a command would cost before any of it is built or run: evaluations, GPU-hours and wall time, job by job."""

from __future__ import annotations

from sweeper.plan.cost import Protocol
from sweeper.plan.estimate import Estimated, Planned, Seconds, Work, estimated
from sweeper.plan.rates import Rate, rates_of
from sweeper.plan.wording import as_json, as_text

__all__ = [
    "Estimated",
    "Planned",
    "Protocol",
    "Rate",
    "Seconds",
    "Work",
    "as_json",
    "as_text",
    "estimated",
    "rates_of",
]
