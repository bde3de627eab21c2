"""Hardware counters of a configuration under NVIDIA's ncu, in the terms of the textbooks, with advice.

What is exported is loaded when it is asked for: the profiled process is a module of this package, and what it
does not load is time that every profile saves.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeper.profile.api import counters, job_of
    from sweeper.profile.job import Job
    from sweeper.profile.profile import Profile
    from sweeper.profile.run import Failed, Profiler, Settings

__all__ = ["Failed", "Job", "Profile", "Profiler", "Settings", "counters", "job_of"]

_PLACES = {
    "Failed": "run",
    "Job": "job",
    "Profile": "profile",
    "Profiler": "run",
    "Settings": "run",
    "counters": "api",
    "job_of": "api",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
