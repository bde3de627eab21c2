"""Precision classes: what a kernel reads, what it accumulates in, and what that costs in accuracy.

A class is more than a storage type: `tf32` is stored as float32 but multiplies operands rounded to
11 bits of significand, so it is its own class with its own bound and is never compared with float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from sweeper.errors import ConfigError

__all__ = ["DTYPES", "DType", "dtype"]


@dataclass(frozen=True)
class DType:
    """One precision class.

    `storage` is the NumPy type of an element in memory, `ctype` its C++ type in a kernel,
    `accumulator` and `output` are names of precision classes. `operand_bits` is the significand
    (hidden bit included) that operands keep inside the multiplier; `significand_bits` the one an
    element keeps in memory (0 for integers, which are exact). `header` declares the C++ type where the
    language does not.
    """

    name: str
    storage: np.dtype[Any]
    ctype: str
    accumulator: str
    significand_bits: int
    operand_bits: int
    aliases: tuple[str, ...] = ()
    header: str = ""

    @property
    def bytes(self) -> int:
        """Bytes of one element in memory."""
        return int(self.storage.itemsize)

    @property
    def is_integer(self) -> bool:
        return self.significand_bits == 0

    @cached_property
    def unit_roundoff(self) -> float:
        """u = 2^-p for p significand bits, round to nearest (Higham, Accuracy and Stability, 2.1)."""
        return 0.0 if self.is_integer else 2.0**-self.significand_bits

    @cached_property
    def operand_roundoff(self) -> float:
        """Roundoff of an operand on its way into the multiplier; equals `unit_roundoff` except for tf32."""
        return 0.0 if self.is_integer else 2.0**-self.operand_bits


def _np(scalar: Any) -> np.dtype[Any]:
    storage: np.dtype[Any] = np.dtype(scalar)
    return storage


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("float64", _np(np.float64), "double", "float64", 53, 53, ("fp64", "f64", "double")),
        DType("float32", _np(np.float32), "float", "float32", 24, 24, ("fp32", "f32", "float")),
        DType("tf32", _np(np.float32), "float", "float32", 24, 11, ("tensorfloat32",)),
        DType(
            "float16", _np(np.float16), "__half", "float32", 11, 11, ("fp16", "f16", "half"), "cuda_fp16.h"
        ),
        DType(
            "bfloat16", _np(ml_dtypes.bfloat16), "__nv_bfloat16", "float32", 8, 8, ("bf16",), "cuda_bf16.h"
        ),
        DType("int8", _np(np.int8), "signed char", "int32", 0, 0, ("i8", "s8")),
        DType("int32", _np(np.int32), "int", "int32", 0, 0, ("i32", "int")),
        DType("int64", _np(np.int64), "long long", "int64", 0, 0, ("i64",)),
        DType("uint32", _np(np.uint32), "unsigned int", "uint32", 0, 0, ("u32", "unsigned")),
        DType("uint64", _np(np.uint64), "unsigned long long", "uint64", 0, 0, ("u64", "size_t")),
    )
}

_BY_ANY_NAME = {name: d for d in DTYPES.values() for name in (d.name, *d.aliases)}


def dtype(name: str, *, where: str = "dtype") -> DType:
    """The precision class called `name` (or one of its aliases).

    Raises ConfigError for an unknown name.
    """
    try:
        return _BY_ANY_NAME[name]
    except (KeyError, TypeError):
        known = ", ".join(DTYPES)
        raise ConfigError(f"{where}: unknown precision class {name!r}", hint=f"use one of {known}") from None
