"""A trial as one flat mapping of plain values, and back: what a store writes and a replay reads.

Nested values are JSON text. Integers that may be of any size are decimal text, since databases stop
at 64 bits.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from sweeper.model import Trial
from sweeper.wire import from_wire, to_wire

__all__ = ["FIELDS", "Plain", "decode", "encode"]

Plain = str | int | float | None

FIELDS: tuple[str, ...] = tuple(f.name for f in dataclasses.fields(Trial))
_JSON = frozenset({"dims", "params", "details", "timing", "check", "launch", "build"})
_INTEGERS = frozenset({"flops", "bytes", "seed"})


def encode(trial: Trial) -> dict[str, Plain]:
    """`trial` by field name, in the order of its fields.

    Raises WireError for details that are no plain values.
    """
    return {name: _encoded(name, getattr(trial, name)) for name in FIELDS}


def decode(row: Mapping[str, Any]) -> Trial:
    """The trial that `encode` turned into `row`; keys that are not fields are ignored.

    Raises KeyError for a missing field, ValueError or WireError for a value that no trial has.
    """
    return from_wire(Trial, {name: _decoded(name, row[name]) for name in FIELDS})


def _encoded(name: str, value: Any) -> Plain:
    if value is None:
        return None
    if name in _JSON:
        # Not sorted: parameters keep the order of the kernel's description.
        return json.dumps(to_wire(value))
    if name in _INTEGERS:
        return str(int(value))
    if isinstance(value, float):
        return float(value)
    wired: Plain = to_wire(value)
    return _storable(wired) if isinstance(wired, str) else wired


def _decoded(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _JSON:
        return json.loads(value)
    return int(value) if name in _INTEGERS else value


def _storable(text: str) -> str:
    """`text` as every database takes it: lone surrogates and NUL written out, nothing else changed."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")
