"""Plain containers as the types that a schema asks for; what does not fit is noted, not raised."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Mapping
from typing import Any

from sweeper.errors import did_you_mean

__all__ = ["typed_value"]


def typed_value(kind: Any, value: Any, key: str, problems: list[str]) -> Any:
    """`value` as `kind`; a problem is noted where it is something else."""
    if isinstance(kind, types.UnionType):
        return None if value is None else _one_of(kind, value, key, problems)
    origin = typing.get_origin(kind)
    if origin is tuple:
        if isinstance(value, list | tuple):
            return tuple(
                typed_value(typing.get_args(kind)[0], v, f"{key}[{i}]", problems) for i, v in enumerate(value)
            )
        problems.append(f"{key} = {value!r} is not a list: write {key}=[a,b]")
        return ()
    if origin is not None and issubclass(origin, Mapping):
        return (
            dict(value)
            if isinstance(value, Mapping)
            else problems.append(f"{key} = {value!r} is not a mapping")
        )
    if dataclasses.is_dataclass(kind):
        return _section(typing.cast(type, kind), value, key, problems)
    return _scalar(kind, value, key, problems)


def _one_of(kind: types.UnionType, value: Any, key: str, problems: list[str]) -> Any:
    """`value` as one of the kinds of a union."""
    inner = [k for k in typing.get_args(kind) if k is not type(None)]
    if set(inner) == {str, int} and isinstance(value, str | int) and not isinstance(value, bool):
        return value
    if len(inner) > 1 and not isinstance(value, str | list | tuple):
        problems.append(f"{key} = {value!r} is neither text nor a list: write {key}=[{value}]")
        return None
    # Of text and a list, the one that is written.
    return typed_value(inner[-1] if isinstance(value, list | tuple) else inner[0], value, key, problems)


def _section(kind: type, value: Any, key: str, problems: list[str]) -> Any:
    if not isinstance(value, Mapping):
        problems.append(f"{key} = {value!r} is not a section of the configuration")
        return kind()
    hints = typing.get_type_hints(kind)
    chosen = {}
    for name, item in value.items():
        if name not in hints:
            problems.append(f"unknown key {key}.{name}{did_you_mean(str(name), hints)}")
        else:
            chosen[name] = typed_value(hints[name], item, f"{key}.{name}", problems)
    return kind(**chosen) if not problems else kind()


_SAID = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _scalar(kind: Any, value: Any, key: str, problems: list[str]) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind in (int, float) and isinstance(value, bool)):
        problems.append(f"{key} = {value!r} is not {_SAID[kind]}{_plain_form(kind, value)}")
    return value


def _plain_form(kind: Any, value: Any) -> str:
    """`: write 100` where a number was written in a form that could mean something else."""
    if kind is int and isinstance(value, float) and value.is_integer():
        return f": write {int(value)}"
    if kind is int and isinstance(value, str):
        text = value.replace("_", "")
        if re.fullmatch(r"[+-]?\d+", text):
            return f": write {int(text)}"
        if re.fullmatch(r"0[xX][0-9a-fA-F]+", text):
            return f": write {int(text, 16)}"
    return ""
