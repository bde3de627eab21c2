"""Where the world is not the one that a result was made in: what to say before anything is measured."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from typing import Any

from sweeper.compare.differences import unlike_values
from sweeper.device import DeviceIdentity
from sweeper.evaluate import Evaluator
from sweeper.paths import checkout_root
from sweeper.provenance import git_state, package_versions
from sweeper.reproduce.work import Work

__all__ = ["differences_now"]

# How the evaluator of recorded tables names what it has in place of a compiler.
_TABLE = "recorded "
# What neither a result nor its time depends on.
_TOOLS = {"optuna", "cmaes", "SQLAlchemy", "torch", "scipy"}


def differences_now(work: Work, world: Evaluator, context: str) -> Iterator[str]:
    """A line for each thing that is not as recorded: source, device, driver, compiler, packages, commit.

    `context` is that of the study as it is done now. Where it is the row's own, all that a row depends on is as it
    was, but for which GPU of its kind it is, and what packages and the commit may hide.
    """
    conditions = list(_conditions(work, world))
    yield from conditions
    recorded = work.published.first.cells.get("context", "")
    if recorded and recorded != context and not conditions and work.silent:
        yield (
            "something that this version takes by default; the record says nothing of"
            f" measure.{', measure.'.join(work.silent)}"
        )
    run = work.published.run
    for line in unlike_values("packages", _packages(run), _versions(package_versions())):
        yield f"other {line}"
    yield from _commit(_of(run, "git"))


def _conditions(work: Work, world: Evaluator) -> Iterator[str]:
    row, run = work.published.first, work.published.run
    digest = str(row.cells.get("kernel_digest", "") or _of(run, "kernel").get("digest") or "")
    if digest and digest != work.spec.digest:
        yield f"{work.spec.name}: another source than recorded ({digest[:8]} → {work.spec.digest[:8]})"
    yield from work.notes
    yield from _device(row.device, row.cells.get("device_uuid", ""), world)
    driver = row.cells.get("driver", "")
    if driver and world.identity.driver and driver != world.identity.driver:
        yield f"another driver ({driver} → {world.identity.driver})"
    compiler = str(run.get("compiler") or "")
    looked_up = [text.startswith(_TABLE) for text in (compiler, world.compiler)]
    # A table that stands for a GPU has no compiler to speak of.
    if compiler and compiler != world.compiler and looked_up[0] == looked_up[1]:
        yield f"another {'table' if looked_up[0] else 'compiler'} ({compiler} → {world.compiler})"


def _of(run: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = run.get(name)
    return value if isinstance(value, Mapping) else {}


def _device(name: str, uuid: str, world: Evaluator) -> Iterator[str]:
    now: DeviceIdentity = world.identity
    if name and name != now.name:
        yield f"another device ({name} → {now.name})"
    elif uuid and now.uuid and uuid != now.uuid:
        yield f"another {name} ({uuid[:12]} → {now.uuid[:12]}): two of one kind differ by a few per cent"


def _packages(run: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    found = _versions(_of(run, "packages"))
    python = str(run.get("python") or "")
    return {**found, **({"python": (python,)} if python else {})}


def _versions(packages: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    kept = {name: (str(v),) for name, v in packages.items() if v is not None and name not in _TOOLS}
    return {**kept, "python": (platform.python_version(),)}


def _commit(recorded: Mapping[str, Any]) -> Iterator[str]:
    root = checkout_root()
    commit = recorded.get("commit")
    now = git_state(root) if root is not None and commit else None
    if now is not None and now["commit"] != commit:
        yield f"another commit ({str(commit)[:12]} → {str(now['commit'])[:12]})"
