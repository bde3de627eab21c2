"""What the profiled process is asked, and what it answers: two files of JSON."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeper.model import Build, Stage, Status

__all__ = ["Reply", "Request"]


@dataclass(frozen=True, slots=True)
class Request:
    """What to launch. `kernel` is the description's node as JSON, `path` its file; `build` is a cubin.

    With a `library` that library's kernel for the same problem is launched instead of the cubin's.
    """

    kernel: str
    path: Path
    dims: dict[str, int]
    seed: int
    params: dict[str, Any]
    build: Build | None
    device: int = 0
    allow_shared: bool = False
    library: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """How the launch ended: `error` is empty where it ran, `kind` the error's class, `device` the GPU's name.

    `status` and `stage` are there where the configuration failed, not the set-up.
    """

    device: str = ""
    error: str = ""
    kind: str = ""
    hint: str = ""
    status: Status | None = None
    stage: Stage | None = None
