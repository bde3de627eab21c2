"""How one configuration ended, and where it stood when it did."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Stage", "Status"]


class Status(StrEnum):
    """How one configuration ended. Only `OK` may rank."""

    OK = "ok"
    INFEASIBLE = "infeasible"
    BUILD_ERROR = "build_error"
    BUILD_TIMEOUT = "build_timeout"
    LAUNCH_ERROR = "launch_error"
    WRONG_RESULT = "wrong_result"
    TIMEOUT = "timeout"
    CRASH = "crash"
    OUT_OF_MEMORY = "out_of_memory"
    UNSTABLE = "unstable"


class Stage(StrEnum):
    """Where a configuration stood when it ended."""

    SPACE = "space"
    BUILD = "build"
    LOAD = "load"
    LAUNCH = "launch"
    VERIFY = "verify"
    MEASURE = "measure"
    DONE = "done"
