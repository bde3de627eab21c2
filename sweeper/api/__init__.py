"""The library: tune a kernel, look up the best configuration, and call it, from a program or a notebook."""

from __future__ import annotations

from sweeper.api.choosing import Choice, best
from sweeper.api.loading import load_kernel
from sweeper.api.result import TuneResult
from sweeper.api.tuning import tune

__all__ = ["Choice", "TuneResult", "best", "load_kernel", "tune"]
