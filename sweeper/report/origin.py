"""Where results come from, and the command that measures them again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sweeper.results import Results

__all__ = ["Fact", "facts_of", "reproduction"]

Fact = tuple[str, str]

_SHOWN_PACKAGES = 40
_MOST_VALUES = 6


def facts_of(result: Results) -> list[Fact]:
    """Name and value of all that is known of the runs, and of rows where the runs do not tell."""
    runs, rows = result.runs, result.trials
    kernels = [
        f"{run['kernel']['name']} ({run['kernel'].get('source', '?')}, {run['kernel'].get('digest', '?')})"
        for run in runs
        if isinstance(run.get("kernel"), Mapping) and "name" in run["kernel"]
    ]
    packages: Mapping[str, Any] = next((run["packages"] for run in runs if run.get("packages")), {})
    facts = [
        ("Command", _distinct(shlex.join(run["command"]) for run in runs if run.get("command"))),
        ("Started", min((str(run["started"]) for run in runs if run.get("started")), default="")),
        ("Ended", max((str(run["ended"]) for run in runs if run.get("ended")), default="")),
        ("Commit", _distinct(_commit(run.get("git")) for run in runs)),
        ("Device", _distinct(_column(result, "device"))),
        ("Device UUID", _distinct(_column(result, "device_uuid"))),
        ("Driver", _distinct(_column(result, "driver"))),
        ("CUDA driver", _distinct(str((run.get("device") or {}).get("cuda_driver", "")) for run in runs)),
        ("Compiler", _distinct(_column(result, "compiler"))),
        ("Compiler options", _distinct(_column(result, "options"))),
        ("Backend", _distinct(_column(result, "backend"))),
        ("Timing", _distinct(_timing(result))),
        ("Seed of the inputs", _distinct(_column(result, "seed"))),
        ("Search", _distinct(_search(run) for run in runs)),
        ("Held clock", _distinct(_column(result, "locked_clock"))),
        ("Python", _distinct(str(run.get("python", "")) for run in runs)),
        ("Platform", _distinct(str(run.get("platform", "")) for run in runs)),
        ("Processors", _distinct(str(run.get("processors", "")) for run in runs)),
        (
            "Packages",
            ", ".join(
                f"{name} {version}" for name, version in list(packages.items())[:_SHOWN_PACKAGES] if version
            ),
        ),
        ("Kernels", _distinct(kernels, most=40)),
        ("Rows", f"{len(rows):,}"),
    ]
    return [(name, value) for name, value in facts if value]


def reproduction(results: Iterable[Results]) -> list[str]:
    """Commands that measure the rows again, from the folder that the report was made in."""
    return [f"python -m sweeper.reproduce {shlex.quote(_from_here(result.path))}" for result in results]


def _from_here(path: Path) -> str:
    """`path` without what is above the current folder: a report is read on other machines."""
    if not path.is_absolute():
        return path.as_posix()
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.name


def _commit(git: Any) -> str:
    if not isinstance(git, Mapping) or not git.get("commit"):
        return ""
    return f"{git['commit']}{' with changes' if git.get('dirty') else ''}"


def _search(run: Mapping[str, Any]) -> str:
    search = (run.get("config") or {}).get("search") or {}
    told = [f"{name} {search[name]}" for name in ("budget", "seed") if search.get(name) is not None]
    return ", ".join([str(search.get("name", "")), *told]) if search else ""


def _timing(result: Results) -> list[str]:
    rows = result.trials[["method", "cache"]].dropna().drop_duplicates()
    return [f"{method}, {cache} L2" for method, cache in rows.itertuples(index=False) if method]


def _column(result: Results, name: str) -> list[str]:
    return [str(value) for value in result.trials[name].dropna().unique().tolist() if value != ""]


def _distinct(values: Iterable[str], most: int = _MOST_VALUES) -> str:
    """Distinct values a line each; how many more there are where they are many."""
    found = list(dict.fromkeys(value for value in values if value))
    more = [f"and {len(found) - most} more"] if len(found) > most else []
    return "\n".join(found[:most] + more)
