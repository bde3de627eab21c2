"""Tensor maps: what TMA must know of an array, encoded by the driver into 128 opaque bytes.

CUDA Driver API, "Tensor Map Object Management": cuTensorMapEncodeTiled. A map holds the array's address, so
every copy of an array has a map of its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from sweeper.problem.tensor_maps import ResolvedTensorMap

__all__ = ["MAP_BYTES", "EncodeError", "encode"]

MAP_BYTES = 128
_ALIGNMENT = 64

# CUtensorMapDataType of cuda.h, by kind and size of an element's storage; int8 and float8 are moved as bytes.
_TYPES = {"i1": 0, "V1": 0, "u1": 0, "u2": 1, "u4": 2, "i4": 3, "u8": 4, "i8": 5, "f2": 6, "f4": 7, "f8": 8}
# TMA rounds float32 to nearest tf32 on its way. The multiplier would cut the lower bits off.
_BY_CLASS = {"bfloat16": 9, "tf32": 11}
_NOT_INTERLEAVED = 0
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_PROMOTED_TO_128_BYTES = 2
_FILLED_WITH_ZEROS, _FILLED_WITH_NAN = 0, 1


class EncodeError(Exception):
    """The driver does not take a tensor map; the text says which, and what it was."""


def encode(encoder: Callable[..., Any], made: ResolvedTensorMap, address: int) -> bytes:
    """The map of the array at `address` on the device, by the driver's cuTensorMapEncodeTiled.

    Raises EncodeError.
    """
    rank = len(made.sizes)
    held = ctypes.create_string_buffer(MAP_BYTES + _ALIGNMENT)
    place = -(-ctypes.addressof(held) // _ALIGNMENT) * _ALIGNMENT
    status = encoder(
        ctypes.c_void_p(place),
        ctypes.c_int(_type(made)),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*made.sizes),
        (ctypes.c_uint64 * rank)(*made.strides),
        (ctypes.c_uint32 * rank)(*made.box),
        (ctypes.c_uint32 * rank)(*(1,) * rank),
        ctypes.c_int(_NOT_INTERLEAVED),
        ctypes.c_int(_SWIZZLES[made.swizzle]),
        ctypes.c_int(_PROMOTED_TO_128_BYTES),
        ctypes.c_int(_FILLED_WITH_NAN if made.nan else _FILLED_WITH_ZEROS),
    )
    if status:
        raise EncodeError(
            f"the driver does not take tensor map {made.name} of {made.array} (error {status}): sizes "
            f"{made.sizes}, strides {made.strides} B, box {made.box}, swizzle {made.swizzle} B, innermost first"
        )
    return ctypes.string_at(place, MAP_BYTES)


def _type(made: ResolvedTensorMap) -> int:
    if made.dtype.name in _BY_CLASS:
        return _BY_CLASS[made.dtype.name]
    storage = made.dtype.storage
    return _TYPES[f"{storage.kind}{storage.itemsize}"]
