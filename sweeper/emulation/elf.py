"""A module as a file: its sections, its variables, and how much shared memory it declares (ELF-64, System V ABI)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

__all__ = [
    "GUARD",
    "SHF_TLS",
    "SHT_NOBITS",
    "STT_OBJECT",
    "SYMBOL",
    "Elf",
    "Section",
    "Symbol",
    "redzone",
    "static_shared_bytes",
]

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
SHT_NOBITS = 8
SHF_TLS = 0x400
STT_OBJECT, _STT_FUNC, _STT_TLS = 1, 2, 6
GUARD = "_ZGV"  # Itanium C++ ABI, section 5.1.5
_LEAST_REDZONE, _MOST_REDZONE = 1024, 16384
_MOST_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    header: int


@dataclass(frozen=True, slots=True)
class Symbol:
    name: str
    kind: int
    value: int
    size: int


class Elf:
    """The file's content, read once. Raises ValueError for what is no 64-bit little-endian ELF."""

    def __init__(self, content: bytes, name: str = "the file") -> None:
        if len(content) < _HEADER.size or content[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{name} is not a module")
        self.content = content
        self._header = _HEADER.unpack_from(content)

    @classmethod
    def of(cls, path: Path) -> Elf:
        return cls(path.read_bytes(), path.name)

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        table, entry_bytes, count, names = (self._header[i] for i in (6, 11, 12, 13))
        raw = [_SECTION_HEADER.unpack_from(self.content, table + i * entry_bytes) for i in range(count)]
        texts = raw[names][4] if names < count else 0
        return tuple(
            Section(self._text(texts + r[0]), r[1], r[2], r[3], r[4], r[5], table + i * entry_bytes)
            for i, r in enumerate(raw)
        )

    def section(self, name: str) -> bytes:
        """Its bytes; none where there is no such section."""
        for section in self.sections:
            if section.name == name and section.kind != SHT_NOBITS:
                return self.content[section.offset : section.offset + section.size]
        return b""

    def _text(self, offset: int) -> str:
        return self.content[offset : self.content.index(b"\0", offset)].decode(errors="replace")

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """All named ones, in the order of the file."""
        texts = next((s.offset for s in self.sections if s.name == ".strtab"), 0)
        return tuple(
            Symbol(self._text(texts + name), info & 15, value, size)
            for name, info, _, _, value, size in SYMBOL.iter_unpack(self.section(".symtab"))
            if name
        )

    def shared_variables(self) -> list[Symbol]:
        """Static `__shared__` variables by their place in a block's memory."""
        return [s for s in self._block_symbols() if not s.name.startswith(GUARD)]

    def guards(self) -> list[Symbol]:
        """What compilers keep beside shared variables to know whether they were constructed."""
        return [s for s in self._block_symbols() if s.name.startswith(GUARD)]

    def _block_symbols(self) -> list[Symbol]:
        found = {s.value: s for s in self.symbols if s.kind == _STT_TLS and s.size}
        return [found[value] for value in sorted(found)]

    def writable_ranges(self) -> list[tuple[int, int]]:
        """Addresses of variables, from and to."""
        return [(s.address, s.address + s.size) for s in self.sections if s.name in (".data", ".bss")]

    def functions(self) -> list[Symbol]:
        return sorted((s for s in self.symbols if s.kind == _STT_FUNC and s.size), key=lambda s: s.value)

    def shared_bytes(self) -> int:
        """Bytes that the variables of a block take, one after another with their alignments (16 at most).

        What a host's compiler and linker put between them, and beside them, a GPU's do not.
        """
        end = 0
        for variable in self.shared_variables():
            alignment = min(variable.value & -variable.value or _MOST_ALIGNMENT, _MOST_ALIGNMENT)
            end = -(-end // alignment) * alignment + variable.size
        return end


def redzone(size: int) -> int:
    """Bytes that a checked module has behind a shared variable of `size` bytes, which belong to none.

    As many as the variable has, within bounds, and a multiple of the largest alignment, so that
    alignments stay what they are without it.
    """
    return -(-max(_LEAST_REDZONE, min(size, _MOST_REDZONE)) // _LEAST_REDZONE) * _LEAST_REDZONE


def static_shared_bytes(module: Path) -> int:
    """Bytes of `__shared__` variables of all kernels of `module` together.

    Raises ValueError for a file that is no module.
    """
    return Elf.of(module).shared_bytes()
