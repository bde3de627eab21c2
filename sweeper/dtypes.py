"""Precision classes: what a kernel reads, what it accumulates in, and what that costs in accuracy.

A class is more than a storage type: `tf32` is stored as float32 but multiplies operands rounded to
11 bits of significand, so it is its own class with its own bound and is never compared with float32. `tf32x3`
multiplies each operand as the sum of two of 11 bits and leaves out the product of the smaller ones: 22 bits.
`float8_e4m3` is summed in registers of float32 by tensor cores that keep fewer bits of a sum: see `sum_bits`.
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
    `accumulator` and `output` are names of classes: what sums are kept in, and what results are stored in
    (empty: the class itself, for integers what they are summed in). `operand_bits` is the significand
    (hidden bit included) that operands keep inside the multiplier; `significand_bits` the one an
    element keeps in memory (0 for integers, which are exact). `sum_bits` is what hardware keeps of a sum
    where that is less than the accumulator holds, 0 where it is not; it then truncates. `header` declares the
    C++ type where the language does not.
    """

    name: str
    storage: np.dtype[Any]
    ctype: str
    accumulator: str
    significand_bits: int
    operand_bits: int
    aliases: tuple[str, ...] = ()
    header: str = ""
    output: str = ""
    sum_bits: int = 0

    @property
    def result(self) -> DType:
        """The class that a result is stored in."""
        if self.output:
            return DTYPES[self.output]
        return DTYPES[self.accumulator] if self.is_integer else self

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
        """Roundoff of an operand on its way into the multiplier; equals `unit_roundoff` except for tf32, tf32x3."""
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
        DType("tf32x3", _np(np.float32), "float", "float32", 24, 22, ("3xtf32",)),
        DType(
            "float16", _np(np.float16), "__half", "float32", 11, 11, ("fp16", "f16", "half"), "cuda_fp16.h"
        ),
        DType(
            "bfloat16", _np(ml_dtypes.bfloat16), "__nv_bfloat16", "float32", 8, 8, ("bf16",), "cuda_bf16.h"
        ),
        # Results in bfloat16, as most callers of cuBLASLt have them: without a scale e4m3 would soon overflow at 448.
        # Hopper's tensor cores align the products, and the sum so far, to the largest of them, keep 14 bits of
        # each and truncate (DeepSeek-V3 Technical Report, arXiv 2412.19437, 3.3.2 and 3.5.2; SageAttention2, arXiv
        # 2411.10958, finds sums with 13 bits behind the point; tests/gpu/test_k_major_gpu.py sees the same).
        DType(
            "float8_e4m3",
            _np(ml_dtypes.float8_e4m3fn),
            "__nv_fp8_e4m3",
            "float32",
            4,
            4,
            ("fp8", "e4m3", "float8_e4m3fn"),
            "cuda_fp8.h",
            output="bfloat16",
            sum_bits=14,
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
