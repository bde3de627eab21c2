"""How much shared memory a module declares itself: the size of its thread-local storage."""

from __future__ import annotations

import struct
from pathlib import Path

__all__ = ["static_shared_bytes"]

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_PT_TLS = 7


def static_shared_bytes(module: Path) -> int:
    """Bytes of `__shared__` variables of all kernels of `module` together (ELF-64, System V ABI).

    Raises ValueError for a file that is no 64-bit little-endian ELF.
    """
    with module.open("rb") as file:
        raw = file.read(_HEADER.size)
        if len(raw) < _HEADER.size or raw[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{module.name} is not a module")
        (_, _, _, _, _, table, _, _, _, entry_bytes, count, *_) = _HEADER.unpack(raw)
        for i in range(count):
            file.seek(table + i * entry_bytes)
            kind, _, _, _, _, _, memory_bytes, _ = _PROGRAM_HEADER.unpack(file.read(_PROGRAM_HEADER.size))
            if kind == _PT_TLS:
                return int(memory_bytes)
    return 0
