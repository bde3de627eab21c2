"""What runs on a node with processors: one build of one unit, its artifact given back as bytes."""

from __future__ import annotations

import importlib
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeper import __version__
from sweeper.build.make import make_builder
from sweeper.build.manifest import Recipe
from sweeper.build.pool import CachedBuilder
from sweeper.build.source import TranslationUnit
from sweeper.cluster.sources import laid_out
from sweeper.errors import SweeperError, TrialFailed
from sweeper.wire import from_wire, to_wire
from sweeper.worker.replies import error_message, failure_message

__all__ = ["build_on_node", "recipe_of_node"]

Message = dict[str, Any]

# A process of Ray's builds many units, one after another: what a builder keeps running serves them all.
_builders: dict[tuple[str, str, bool], CachedBuilder] = {}


def _builder(kind: Mapping[str, Any]) -> CachedBuilder:
    key = (kind["backend"], kind["compiler"], kind["cache"])
    if key not in _builders:
        _builders[key] = make_builder(key[0], key[1], cache=key[2])
    return _builders[key]


def recipe_of_node(kind: Message, arch: str) -> Message:
    """How this node would build for `arch`, or why it cannot: `{"recipe": …}` or `{"unfit": …}`."""
    try:
        if kind["version"] != __version__:
            return _unfit(f"sweeper {__version__} is installed there, the command's is {kind['version']}")
        builder = _builder(kind)
        builder.check(arch)
        return {"recipe": to_wire(builder.recipe(arch))}
    except SweeperError as error:
        return _unfit(error.message)


def build_on_node(request: Message, sources: Message) -> Message:
    """The build that `request` asks for (unit, arch, deadline_s, recipe, kind), its files being `sources`.

    `{"build", "artifact"}`, `{"failed", "log"}`, `{"error"}`, or `{"unfit"}` where this node would build otherwise
    than the others.
    """
    told = recipe_of_node(request["kind"], request["arch"])
    if "unfit" in told:
        return told
    if told["recipe"] != request["recipe"]:
        return _unfit(f"it builds with {_said(told['recipe'])}, the others with {_said(request['recipe'])}")
    builder = _builder(request["kind"])
    try:
        folder = laid_out(sources["files"], sources["digest"], builder.cache)
        unit = from_wire(TranslationUnit, request["unit"])
        unit = replace(
            unit,
            source=folder / unit.source,
            include_dirs=tuple(folder / place for place in unit.include_dirs),
        )
        build = builder.build(unit, arch=request["arch"], deadline_s=request["deadline_s"])
        artifact = build.artifact.read_bytes()
    except TrialFailed as failure:
        log = failure.details.pop("log", None)
        return {"failed": failure_message(failure), "log": _read(log)}
    except SweeperError as error:
        message = f"{socket.gethostname()}: {error.message}"
        return {"error": error_message(type(error).__name__, message, error.hint)}
    return {"build": to_wire(replace(build, artifact=Path(build.artifact.name))), "artifact": artifact}


def _unfit(why: str) -> Message:
    return {"unfit": {"node": _node(), "host": socket.gethostname(), "why": why}}


def _node() -> str:
    """Ray's name of this node."""
    return str(importlib.import_module("ray").get_runtime_context().get_node_id())


def _said(recipe: Message) -> str:
    """A recipe for people: the compiler, and what else it was told where there is something."""
    plain = from_wire(Recipe, recipe)
    return " ".join([plain.identity, *plain.flags])


def _read(log: Any) -> str:
    try:
        return Path(str(log)).read_text(encoding="utf-8", errors="replace") if log else ""
    except OSError:
        return ""
