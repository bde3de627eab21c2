"""What a run was: enough to repeat it, and to see where two runs differ."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from sweeper.atomic import atomic_write
from sweeper.paths import checkout_root
from sweeper.redaction import redact
from sweeper.wire import to_wire

__all__ = ["git_state", "package_versions", "run_record", "write_json"]

_PACKAGES = (
    "sweeper", "numpy", "pandas", "hydra-core", "omegaconf", "optuna", "SQLAlchemy", "ml_dtypes",
    "pycuda", "nvidia-ml-py", "nvmath-python", "scipy", "torch", "cmaes",
)  # fmt: skip
_GIT_SECONDS = 10.0


def run_record(
    *,
    command: Sequence[str],
    config: Mapping[str, Any],
    started: datetime,
    ended: datetime | None = None,
    source: Path | None = None,
    facts: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A run as plain JSON values, secrets hidden; nothing in it says whose machine it was.

    `config` is the resolved configuration; `facts` what the run found out: device, compiler, kernels'
    digests, exit code. `source` is the folder whose git state counts (default: the checkout that this
    package is run from, else the current folder). `ended` defaults to now. Times are UTC.
    """
    record = {
        "id": uuid4().hex,
        "started": _utc(started),
        "ended": _utc(ended or datetime.now(UTC)),
        "command": list(command),
        "config": to_wire(config),
        "packages": package_versions(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "git": git_state(source or checkout_root() or Path.cwd()),
        **to_wire(facts or {}),
    }
    hidden: dict[str, Any] = redact(record)
    return hidden


def write_json(record: Mapping[str, Any], path: Path) -> None:
    """Write `record` as JSON with sorted keys, durably and as a whole. Raises StorageError."""
    text = json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    atomic_write(path, text.encode("utf-8", "backslashreplace") + b"\n")


def package_versions() -> dict[str, str | None]:
    """The installed version of every package a result may depend on; None where it is not installed."""
    versions: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    if versions["sweeper"] is None:
        from sweeper import __version__

        versions["sweeper"] = __version__
    return versions


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit of the repository around `folder` and whether files differ from it; None without one or git."""
    commit = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=normal")
    return None if commit is None or changes is None else {"commit": commit, "dirty": bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    # Without optional locks a look at the state never stands in the way of the user's own git.
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_GIT_SECONDS,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _utc(moment: datetime) -> str:
    """ISO 8601 in UTC with microseconds; a moment without a zone is taken as local time."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
