"""A kernel's arguments at one problem size: arrays with their shapes, scalars with their values."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweeper.dtypes import DType
from sweeper.errors import ConfigError, did_you_mean
from sweeper.expressions import Expression, Value
from sweeper.model import ArraySpec, Direction, ScalarSpec
from sweeper.problem.rounding import largest

__all__ = ["ResolvedArray", "ResolvedScalar", "cast", "resolve_array", "resolve_dims", "resolve_scalar"]


@dataclass(frozen=True, slots=True)
class ResolvedArray:
    """An array argument in C order, `shape` in elements.

    `amplitude` is what the fill is scaled by: the largest magnitude of `uniform` and of integers,
    the standard deviation of `normal`; `zeros` and `ones` do not heed it. A row is what the last axis
    counts. With a `row_pitch` rows begin so many elements apart, and what lies between the end of one and
    the start of the next belongs to nobody; the array ends with its last row.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    direction: Direction
    fill: str
    amplitude: float = 1.0
    row_pitch: int | None = None

    @property
    def size(self) -> int:
        """Elements, without what lies between rows."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.size * self.dtype.bytes

    @property
    def width(self) -> int:
        """Elements of a row."""
        return self.shape[-1]

    @property
    def rows(self) -> int:
        return math.prod(self.shape[:-1])

    @property
    def pitch(self) -> int:
        """Elements from the start of one row to that of the next."""
        return self.width if self.row_pitch is None else self.row_pitch

    @property
    def has_gaps(self) -> bool:
        return self.pitch > self.width and self.rows > 1

    @property
    def stored_size(self) -> int:
        """Elements from the first to the last, with what lies between rows."""
        return (self.rows - 1) * self.pitch + self.width if self.has_gaps else self.size

    @property
    def stored_bytes(self) -> int:
        """What it takes in memory."""
        return self.stored_size * self.dtype.bytes

    @property
    def traffic_bytes(self) -> int:
        """Compulsory traffic: read once, written once."""
        return self.nbytes * (2 if self.direction is Direction.INOUT else 1)

    @property
    def is_input(self) -> bool:
        return self.direction in (Direction.IN, Direction.INOUT)

    @property
    def is_output(self) -> bool:
        return self.direction in (Direction.OUT, Direction.INOUT)

    @property
    def is_scratch(self) -> bool:
        return self.direction is Direction.SCRATCH

    def __str__(self) -> str:
        apart = f", rows {self.pitch} apart" if self.has_gaps else ""
        return f"{self.name} ({self.dtype.name} {'×'.join(map(str, self.shape))}{apart})"


@dataclass(frozen=True, slots=True)
class ResolvedScalar:
    """A scalar argument: `value` has exactly the declared type, ready to be passed by value."""

    name: str
    dtype: DType
    value: np.generic


def resolve_dims(
    declared: Mapping[str, int | None],
    given: Mapping[str, int],
    *,
    kernel: str,
    optional: Iterable[str] = (),
) -> dict[str, int]:
    """Every size that `kernel` has `declared`, in that order: as `given`, else its default.

    Those of its `optional` sizes that are given follow. Raises ConfigError for a size that is unknown,
    missing, not whole, or below 1.
    """
    known = [*declared, *optional]
    for name in given:
        if name not in known:
            raise ConfigError(
                f"shape.{name.lower()}: kernel {kernel} has no size {name}{did_you_mean(name, known)}",
                hint=f"its sizes are {', '.join(known)}",
            )
    sizes: dict[str, int] = {}
    for name in [*declared, *(name for name in optional if name in given)]:
        value = given.get(name, declared.get(name))
        place = f"shape.{name.lower()}"
        if value is None:
            raise ConfigError(f"{place}: missing, and kernel {kernel} has no default for it")
        if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
            raise ConfigError(f"{place} = {value!r}: not a whole number")
        sizes[name] = operator.index(value)
        if sizes[name] < 1:
            raise ConfigError(f"{place} = {value}: must be at least 1")
    return sizes


def resolve_array(spec: ArraySpec, kernel: DType, scope: Mapping[str, Value]) -> ResolvedArray:
    """`spec` with its shape evaluated in `scope`; its class is the `kernel`'s unless it has its own.

    Raises ExpressionError for a size that is not whole and ConfigError for one below 1 (of a scratch array:
    below 0) and for a pitch that is less than a row.
    """
    shape = tuple(s.evaluate_int(scope, what=f"size {i} of {spec.name}") for i, s in enumerate(spec.shape))
    least = 0 if spec.direction is Direction.SCRATCH else 1
    for i, size in enumerate(shape):
        if size < least:
            raise ConfigError(
                f"size {i} of {spec.name} = {spec.shape[i].text} = {size}: must be at least {least}"
            )
    pitch = None if spec.pitch is None else _pitch(spec, spec.pitch, shape[-1], scope)
    return ResolvedArray(spec.name, spec.dtype or kernel, shape, spec.direction, spec.fill, row_pitch=pitch)


def _pitch(spec: ArraySpec, pitch: Expression, width: int, scope: Mapping[str, Value]) -> int | None:
    """Elements between the starts of two rows; None where the rows follow each other."""
    value = pitch.evaluate_int(scope, what=f"pitch of {spec.name}")
    if value < width:
        named = pitch.text in pitch.names
        place = f"shape.{pitch.text.lower()}" if named else f"pitch {pitch.text} of {spec.name}"
        raise ConfigError(
            f"{place} = {value}: a row of {spec.name} has {spec.shape[-1].text} = {width} elements",
            hint=f"give at least {width}, or rows would overlap",
        )
    return None if value == width else value


def resolve_scalar(spec: ScalarSpec, kernel: DType, scope: Mapping[str, Value]) -> ResolvedScalar:
    """`spec` with its value evaluated in `scope` and cast to its class.

    Raises ExpressionError, and ConfigError for a value its type cannot hold.
    """
    precision = spec.dtype or kernel
    return ResolvedScalar(spec.name, precision, cast(spec.name, spec.value.evaluate(scope), precision))


def cast(name: str, value: Value, precision: DType) -> np.generic:
    """`value` as a scalar of exactly `precision`'s type, for the argument `name`.

    A float is rounded to nearest; an integer type takes whole numbers only. Raises ConfigError for a
    fraction, text, or a value beyond the type's range: each would reach the kernel as garbage.
    """
    if isinstance(value, str):
        raise ConfigError(f"scalar {name} = {value!r}: text cannot be passed as {precision.name}")
    kind: Any = precision.storage.type
    if precision.is_integer:
        limits = np.iinfo(precision.storage)
        if not float(value).is_integer():
            raise ConfigError(
                f"scalar {name} = {value}: not a whole number, but declared {precision.name}",
                hint=f"declare it `scalar: float32`, or round it: `value: floor({value})`",
            )
        if not limits.min <= int(value) <= limits.max:
            raise ConfigError(
                f"scalar {name} = {value}: beyond {precision.name}, which holds {limits.min} to {limits.max}",
                hint="declare a wider type",
            )
        whole: np.generic = kind(int(value))
        return whole
    with np.errstate(over="ignore"):
        rounded: np.generic = kind(float(value))
    if not math.isfinite(float(rounded)):
        raise ConfigError(
            f"scalar {name} = {value}: beyond {precision.name}, which ends at {largest(precision):g}",
            hint="declare a wider type",
        )
    return rounded
