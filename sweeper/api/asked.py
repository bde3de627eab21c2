"""What is asked from Python, as the command line would have it: `key=value`, one a word."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sweeper.errors import ConfigError

__all__ = ["Shape", "as_overrides", "literal", "shape_overrides"]

Shape = str | Mapping[str, int] | Sequence[int]
"""A name (`large`), `256x512x64`, sizes in the order of the kernel's, or sizes by name (leading dimensions too)."""

# What Hydra's grammar takes for text without quotes, and takes for nothing else.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS = {"null", "true", "false", "nan", "inf"}


def literal(value: Any, where: str) -> str:
    """`value` in Hydra's grammar. Raises ConfigError for what a configuration cannot hold."""
    if hasattr(value, "item") and not isinstance(value, str):
        value = value.item()
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return value
        return "'" + re.sub(r"(\\*)('|$)", _escaped, value) + "'"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{literal(one, where)}" for key, one in value.items()) + "}"
    if isinstance(value, Iterable):
        return "[" + ",".join(literal(one, where) for one in value) + "]"
    raise ConfigError(
        f"{where} = {value!r} is a {type(value).__name__}: give numbers, text or lists of these"
    )


def _escaped(match: re.Match[str]) -> str:
    """Backslashes are doubled where a quote follows, or the end."""
    slashes, quote = match[1], match[2]
    return slashes * 2 + (r"\'" if quote else "")


def as_overrides(given: Sequence[str] | Mapping[str, Any]) -> list[str]:
    """Overrides as text, from a list of `key=value` or from values by key. Raises ConfigError."""
    if isinstance(given, Mapping):
        return [f"{key}={literal(value, str(key))}" for key, value in given.items()]
    if isinstance(given, str):
        raise ConfigError(f"overrides = {given!r} is one text", hint=f"give a list: overrides=[{given!r}]")
    for one in given:
        if not isinstance(one, str) or "=" not in one or one.startswith("-"):
            raise ConfigError(
                f"overrides has {one!r}, which is no key=value", hint="such as measure.confirm_blocks=20"
            )
    return list(given)


def shape_overrides(shape: Shape, dims: Sequence[str] | None) -> list[str]:
    """The overrides that name the shape. `dims` are the kernel's sizes in order, needed for a sequence only.

    Raises ConfigError.
    """
    if isinstance(shape, str):
        return [f"shape={shape}"]
    if isinstance(shape, Mapping):
        return [
            f"shape.{str(name).lower()}={literal(size, f'shape[{name!r}]')}" for name, size in shape.items()
        ]
    if not isinstance(shape, Iterable):
        raise ConfigError(
            f"shape = {shape!r} is a {type(shape).__name__}",
            hint=f"write ({shape}, {shape}, {shape}), or a name such as 'large'",
        )
    sizes = list(shape)
    names = list(dims or ())
    if len(sizes) != len(names):
        raise ConfigError(
            f"shape = {tuple(sizes)} has {len(sizes)} sizes, the kernel has {', '.join(names)}",
            hint="or give them by name: shape={'m': 512}",
        )
    return [
        f"shape.{name.lower()}={literal(size, f'shape[{name!r}]')}"
        for name, size in zip(names, sizes, strict=True)
    ]
