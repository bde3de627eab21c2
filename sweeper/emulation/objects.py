"""A checked module's object file, changed before it is linked: room between shared variables, and names.

No option of a linker is needed for either, and so every linker will do.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from sweeper.emulation.elf import GUARD, SHF_TLS, SHT_NOBITS, SYMBOL, Elf, Section, redzone

__all__ = ["prepare"]

_OFFSET_FIELD, _SIZE_FIELD = 24, 32  # of a section header


def prepare(object_file: Path, names: Mapping[str, str]) -> None:
    """Make room behind every shared variable, and call the undefined functions `names` by other names."""
    content = bytearray(object_file.read_bytes())
    _pad_variables(content)
    _rename_undefined(content, names)
    object_file.write_bytes(content)


def _pad_variables(content: bytearray) -> None:
    """Each variable is alone in a section without content (`-fdata-sections`), which only has to be said to
    be larger."""
    for section in _variable_sections(Elf(bytes(content))):
        _put(content, section.header + _SIZE_FIELD, section.size + redzone(section.size))


def _variable_sections(elf: Elf) -> Iterator[Section]:
    for section in elf.sections:
        is_variable = section.kind == SHT_NOBITS and section.flags & SHF_TLS and section.size
        if is_variable and GUARD not in section.name:
            yield section


def _rename_undefined(content: bytearray, names: Mapping[str, str]) -> None:
    """The new names go to a longer table of names at the file's end."""
    elf = Elf(bytes(content))
    sections = {s.name: s for s in elf.sections}
    symbols, strings = sections.get(".symtab"), sections.get(".strtab")
    if symbols is None or strings is None:
        return
    table = bytearray(elf.section(".strtab"))
    for at in range(symbols.offset, symbols.offset + symbols.size, SYMBOL.size):
        name, _, _, home, *_ = SYMBOL.unpack_from(content, at)
        renamed = (
            names.get(table[name : table.index(0, name)].decode(errors="replace")) if home == 0 else None
        )
        if renamed:
            content[at : at + 4] = struct.pack("<I", len(table))
            table += renamed.encode() + b"\0"
    content += b"\0" * (-len(content) % 8)
    _put(content, strings.header + _OFFSET_FIELD, len(content))
    _put(content, strings.header + _SIZE_FIELD, len(table))
    content += table


def _put(content: bytearray, at: int, value: int) -> None:
    content[at : at + 8] = struct.pack("<Q", value)
