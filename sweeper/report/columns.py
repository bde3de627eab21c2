"""Columns as the page reads them: a JSON header and raw little-endian arrays behind it, in one gzipped blob.

    uint32 length of the header | header, padded with spaces to a multiple of 8 | arrays, each padded likewise

In the header an array is `{"at": bytes from the first array, "n": elements, "t": "f4" | "i4" | "u2" | "u1"}`.
"""

from __future__ import annotations

import base64
import gzip
import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["Columns", "column", "packed", "unpack"]

_TYPES = {"f4": "<f4", "i4": "<i4", "u2": "<u2", "u1": "u1"}
_ALIGN = 8
NONE16, NONE8 = 0xFFFF, 0xFF


class Columns:
    """Collects arrays, then packs them with their header."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def floats(self, values: Any) -> dict[str, Any]:
        """Reals, to the seven digits of float32; NaN is no value."""
        return self._add(np.asarray(values, dtype="<f4"), "f4")

    def integers(self, values: Any) -> dict[str, Any]:
        """Whole numbers of 32 bits."""
        return self._add(np.asarray(values, dtype="<i4"), "i4")

    def codes(self, values: Any) -> dict[str, Any]:
        """Places in a list, −1 for none, in as few bytes as hold them; the largest number is none."""
        places = np.asarray(values, dtype=np.int64)
        small = len(places) == 0 or int(places.max()) < NONE8
        none, kind = (NONE8, "u1") if small else (NONE16, "u2")
        return self._add(np.where(places < 0, none, places).astype(_TYPES[kind]), kind)

    def _add(self, values: np.ndarray[Any, Any], kind: str) -> dict[str, Any]:
        at, data = self._size, _padded(values.tobytes())
        self._parts.append(data)
        self._size += len(data)
        return {"at": at, "n": len(values), "t": kind}

    def pack(self, header: Mapping[str, Any]) -> str:
        """The blob as text that stands in a page."""
        text = _padded(
            json.dumps(header, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(
                "utf-8", "replace"
            ),
            extra=4,
        )
        whole = struct.pack("<I", len(text)) + text + b"".join(self._parts)
        return packed(whole)


def _padded(data: bytes, extra: int = 0) -> bytes:
    return data + b" " * (-(len(data) + extra) % _ALIGN)


def packed(data: bytes) -> str:
    """`data` gzipped, in base 85 with a comma for the less-than sign: no markup can be read into it."""
    return base64.b85encode(gzip.compress(data, 9, mtime=0)).decode("ascii").replace("<", ",")


def unpack(blob: str) -> tuple[dict[str, Any], bytes]:
    """The header of a packed blob, and the bytes of its arrays."""
    whole = gzip.decompress(base64.b85decode(blob.replace(",", "<")))
    (length,) = struct.unpack_from("<I", whole)
    return json.loads(whole[4 : 4 + length]), whole[4 + length :]


def column(about: Mapping[str, Any], arrays: bytes) -> np.ndarray[Any, Any]:
    """One array of a blob, as its header describes it."""
    return np.frombuffer(arrays, _TYPES[about["t"]], about["n"], about["at"])
