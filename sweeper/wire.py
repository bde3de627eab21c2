"""Dataclasses as plain JSON values and back, driven by their type hints.

JSON has no NaN, no infinity, no tuple, no enum and no path. Here a float that is not finite is
`{"$float": "nan"}`, every sequence a list, an enum its value, a path its text; `from_wire` knows from
the hints what each was. What the hints do not name (`Any`) comes back as plain JSON values.
"""

from __future__ import annotations

import contextlib
import math
import types
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from sweeper.errors import SweeperError

__all__ = ["WireError", "from_wire", "to_wire"]

T = TypeVar("T")

_FLOAT = "$float"


class WireError(SweeperError):
    """A value cannot be sent, or what was received is not of the expected type."""


def to_wire(value: Any) -> Any:
    """`value` (dataclass, enum, path, NumPy scalar, mapping, sequence, plain value) as plain JSON.

    Raises WireError for any other type, for keys that are neither text nor integers, and for a
    mapping that holds the key `$float`.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, np.generic):
        return to_wire(value.item())
    if isinstance(value, Enum):
        return to_wire(value.value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {_FLOAT: repr(float(value))}
    if isinstance(value, (int, str)):
        return value
    if isinstance(value, Path):
        return str(value)
    return _container(value)


def _container(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_wire(getattr(value, f.name)) for f in fields(value) if f.init}
    if isinstance(value, Mapping):
        return {_key(key): to_wire(item) for key, item in value.items()}
    if isinstance(value, AbstractSet):
        return [to_wire(item) for item in sorted(value)]
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [to_wire(item) for item in value]
    raise WireError(f"a {type(value).__name__} cannot be sent: {str(value)[:100]}")


def _key(key: Any) -> str:
    if isinstance(key, Enum):
        return _key(key.value)
    if isinstance(key, bool) or not isinstance(key, (str, int)) or key == _FLOAT:
        raise WireError(f"a mapping with the key {key!r} cannot be sent")
    return str(key)


def from_wire(cls: type[T], data: Any) -> T:
    """The `cls` that `to_wire` made `data` from; `cls` may be any type hint.

    Raises WireError, with the path of the field, for an unknown or missing field and for a value of
    another type than the hint's.
    """
    return cast(T, _decode(cls, data, getattr(cls, "__name__", str(cls))))


# A store of thousands of rows is decoded value by value: most values are plain, and hints are few.
_SIMPLE = frozenset({int, float, str, bool})


def _decode(hint: Any, data: Any, where: str) -> Any:
    if type(data) is hint and hint in _SIMPLE:
        return data
    return _decoder(hint)(data, where)


@cache
def _decoder(hint: Any) -> Callable[[Any, str], Any]:
    """What decodes values of `hint`: which that is depends on the hint alone, and is found out once."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda data, _: _plain(data)
    if origin in (Union, types.UnionType):
        return partial(_union, args)
    if isinstance(hint, type) and is_dataclass(hint):
        return partial(_dataclass, hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return partial(_enum, hint)
    if origin is tuple:
        return partial(_tuple, args)
    if decode := _COLLECTIONS.get(origin or hint):
        return partial(decode, args)
    return partial(_scalar, hint)


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return _special(data, "a number") if _FLOAT in data else {k: _plain(v) for k, v in data.items()}
    return [_plain(item) for item in data] if isinstance(data, list) else data


def _special(data: dict[str, Any], where: str) -> float:
    number = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}.get(data[_FLOAT])
    if number is None or len(data) != 1:
        raise _mismatch(float, data, where)
    return number


def _scalar(hint: Any, data: Any, where: str) -> Any:
    if hint is float:
        if isinstance(data, dict) and _FLOAT in data:
            return _special(data, where)
        if isinstance(data, (int, float)) and not isinstance(data, bool):
            return float(data)
    elif hint is Path and isinstance(data, str):
        return Path(data)
    # The exact type: a bool is an int to Python, but not to whoever wrote the hint.
    elif hint in (int, str, bool, type(None)) and type(data) is hint:
        return data
    raise _mismatch(hint, data, where)


def _mismatch(hint: Any, data: Any, where: str) -> WireError:
    return WireError(f"{where}: {str(data)[:100]!r} is no {getattr(hint, '__name__', hint)}")


@cache
def _real(hints: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(hint for hint in hints if hint is not type(None))


def _union(hints: tuple[Any, ...], data: Any, where: str) -> Any:
    real = _real(hints)
    if data is None and len(real) < len(hints):
        return None
    if len(real) == 1:
        return _decode(real[0], data, where)
    # An exact match first: 1 in `int | float` stays an integer, true in `int | bool` stays true.
    for hint in sorted(real, key=lambda hint: hint is not type(data)):
        with contextlib.suppress(WireError):
            return _decode(hint, data, where)
    raise _mismatch(Union[hints], data, where)  # noqa: UP007 - built at run time


def _enum(hint: type[Enum], data: Any, where: str) -> Enum:
    try:
        return hint(data)
    except ValueError:
        raise _mismatch(hint, data, where) from None


def _items(data: Any, where: str) -> list[Any]:
    if not isinstance(data, list):
        raise _mismatch(list, data, where)
    return data


def _tuple(hints: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    items = _items(data, where)
    if len(hints) == 2 and hints[1] is Ellipsis:
        if hints[0] in _SIMPLE and all(type(item) is hints[0] for item in items):
            return tuple(items)
        hints = (hints[0],) * len(items)
    if len(items) != len(hints):
        raise WireError(f"{where}: {len(items)} values where {len(hints)} are expected")
    return tuple(
        _decode(hint, item, f"{where}[{n}]") for n, (hint, item) in enumerate(zip(hints, items, strict=True))
    )


def _sequence(hints: tuple[Any, ...], data: Any, where: str) -> list[Any]:
    hint = hints[0] if hints else Any
    return [_decode(hint, item, f"{where}[{n}]") for n, item in enumerate(_items(data, where))]


def _mapping(hints: tuple[Any, ...], data: Any, where: str) -> dict[Any, Any]:
    if not isinstance(data, dict):
        raise _mismatch(dict, data, where)
    key_hint, hint = hints or (str, Any)
    return {_map_key(key_hint, key, where): _decode(hint, data[key], f"{where}[{key!r}]") for key in data}


def _map_key(hint: Any, key: str, where: str) -> Any:
    if hint is int:
        try:
            return int(key)
        except ValueError:
            raise _mismatch(int, key, f"{where}'s keys") from None
    return _decode(hint, key, f"{where}'s keys")


def _collect(into: Callable[[list[Any]], Any]) -> Callable[[tuple[Any, ...], Any, str], Any]:
    return lambda hints, data, where: into(_sequence(hints, data, where))


_COLLECTIONS: dict[Any, Callable[[tuple[Any, ...], Any, str], Any]] = {
    tuple: _collect(tuple),
    list: _sequence,
    Sequence: _collect(tuple),
    set: _collect(set),
    frozenset: _collect(frozenset),
    AbstractSet: _collect(frozenset),
    dict: _mapping,
    Mapping: _mapping,
}


@cache
def _hints(cls: type) -> tuple[dict[str, Any], frozenset[str]]:
    """The type hints of a dataclass's fields, and the names of those without a default."""
    hints = get_type_hints(cls)
    given = [f for f in fields(cls) if f.init]
    required = (f.name for f in given if f.default is MISSING and f.default_factory is MISSING)
    return {f.name: hints[f.name] for f in given}, frozenset(required)


def _dataclass(cls: type, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise _mismatch(cls, data, where)
    known, required = _hints(cls)
    if not data.keys() <= known.keys():
        unknown = sorted(data.keys() - known.keys())
        raise WireError(f"{where} has no field {', '.join(map(repr, unknown))}")
    if not required <= data.keys():
        missing = next(name for name in known if name in required and name not in data)
        raise WireError(f"{where}: the field {missing!r} is missing")
    return cls(
        **{name: _decode(hint, data[name], f"{where}.{name}") for name, hint in known.items() if name in data}
    )
