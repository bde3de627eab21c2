"""The strict check of a composed configuration against the schema.

Hydra accepts `+shpe=large` without a word; here every key must be known and every value of its type,
and what is not is listed with the nearest right name.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from sweeper.config.contradictions import contradictions
from sweeper.config.schema import Config, ShapeConfig
from sweeper.config.shapes import weighted_shapes
from sweeper.config.typed import typed_value
from sweeper.errors import ConfigError, did_you_mean
from sweeper.lessons import why_no_report

__all__ = ["validate"]


def validate(node: Mapping[str, Any]) -> Config:
    """The configuration in `node` (plain containers, as composed), or ConfigError listing all that is wrong."""
    known = {f.name for f in dataclasses.fields(Config)}
    kernel = node.get("kernel")
    params = kernel.get("params", {}) if isinstance(kernel, Mapping) else {}
    problems = [f"unknown key {k!r}{_nearest(str(k), known, params)}" for k in node if k not in known]
    if not isinstance(kernel, Mapping):
        problems.append(f"kernel = {kernel!r} is not a kernel's description")
    values: dict[str, Any] = {
        "kernel": kernel,
        "shape": _shape(node.get("shape"), kernel, problems),
        "shapes": weighted_shapes(node.get("shapes"), problems),
    }
    for f in dataclasses.fields(Config):
        if f.name in node and f.name not in values:
            values[f.name] = typed_value(
                typing.get_type_hints(Config)[f.name], node[f.name], f.name, problems
            )
    problems.extend(contradictions(values))
    if not problems:
        problems.extend(why_no_report(values.get("report"), values.get("pitfalls", ())))
    if problems:
        raise ConfigError("configuration: " + "\n  ".join(problems))
    return Config(**values)


def _nearest(key: str, known: set[str], params: Mapping[str, Any]) -> str:
    """The nearest top-level key, or the nearest parameter of the kernel by its full name."""
    full = {**{k: k for k in known}, **{str(p): f"kernel.params.{p}" for p in params}}
    hint = did_you_mean(key, full)
    for short, name in full.items():
        hint = hint.replace(f"'{short}'", f"'{name}'")
    return hint


def _shape(node: Any, kernel: Any, problems: list[str]) -> ShapeConfig:
    if not isinstance(node, Mapping):
        problems.append(
            f"shape = {node!r} is not a shape: write shape=large, shape=256x512x64 or shape.m=256"
        )
        return ShapeConfig(None, {})
    dims = kernel.get("dims") if isinstance(kernel, Mapping) else None
    listed = dims if isinstance(dims, list) else [dims] if isinstance(dims, Mapping) else []
    named = {str(n).lower() for item in listed for n in (item if isinstance(item, Mapping) else [item])}
    known = {"name", "m", "n", "k"} | named
    sizes = {}
    for key, value in node.items():
        if key not in known:
            problems.append(f"unknown key shape.{key}{did_you_mean(str(key), known)}")
        elif key != "name" and value is not None:
            if named and key not in named and not node.get("name"):
                problems.append(f"shape.{key}: the kernel has no size {key}, only {', '.join(sorted(named))}")
            sizes[str(key)] = typed_value(int, value, f"shape.{key}", problems)
            if isinstance(value, int) and value < 1:
                problems.append(f"shape.{key} = {value}: a size is at least 1")
    return ShapeConfig(node.get("name"), sizes)
