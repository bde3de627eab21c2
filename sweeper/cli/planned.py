"""What Hydra was asked: this job's overrides, and the list of all jobs that it leaves in the results folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from sweeper.redaction import redact

__all__ = ["asked", "command_folder", "own_among", "own_overrides", "plan_file", "planned_jobs", "told"]

# What the command line gets from us, not from the user.
_OURS = ("results_dir=", "shape.name=")


def plan_file(results: Path) -> Path:
    """What Hydra writes into the results folder before the first job of a multirun begins."""
    return results / "multirun.yaml"


def own_overrides() -> list[str]:
    """What distinguishes this job: the overrides that Hydra composed it from, without those that say where."""
    from hydra.core.hydra_config import HydraConfig

    return own_among(map(str, HydraConfig.get().overrides.task))


def own_among(overrides: Iterable[str]) -> list[str]:
    """`overrides` without those that say where the results go."""
    return [override for override in overrides if not override.lstrip("+").startswith(_OURS[0])]


def asked() -> str:
    """`kernel=tiled shape=odd`: what was asked of this job, as people write it."""
    return told(own_overrides())


def planned_jobs(results: Path) -> list[str]:
    """What is asked of each job of the multirun in the folder `results`, in order; empty where that is not known."""
    plan = _plan(results)
    sweeper = plan.get("sweeper") or {}
    if "basic_sweeper" not in str(sweeper.get("_target_")):
        return []
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser

    params = [f"{key}={value}" for key, value in (sweeper.get("params") or {}).items()]
    overrides = OverridesParser.create().parse_overrides([*params, *plan["overrides"]["task"]])
    (jobs,) = BasicSweeper.split_arguments(overrides, None)
    return [told(job) for job in jobs]


def command_folder(results: Path) -> Path | None:
    """The folder that the multirun in `results` was started in, if Hydra has left word of it."""
    cwd = (_plan(results).get("runtime") or {}).get("cwd")
    return Path(cwd) if cwd else None


def _plan(results: Path) -> dict[str, Any]:
    try:
        node = yaml.load(plan_file(results).read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506
    except (OSError, yaml.YAMLError):
        return {}
    plan: dict[str, Any] = (node or {}).get("hydra") or {}
    return plan


# Both are safe; the one in C takes a tenth of the time.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def told(overrides: Iterable[str]) -> str:
    """`kernel=tiled shape=odd`: these overrides as people write them, without what is ours and what is secret."""
    bare = (override.lstrip("+") for override in overrides)
    return str(redact(" ".join(override for override in bare if not override.startswith(_OURS))))
