"""Debugging entries of a module (DWARF 4, sections 2 and 7), as far as places and variables need them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from sweeper.emulation.elf import Elf

__all__ = ["Attribute", "Cursor", "Entry", "Tag", "Unit", "units"]


class Tag(IntEnum):
    """The kinds of entry that are looked at (DWARF 4, figure 18)."""

    ARRAY_TYPE = 0x01
    LEXICAL_BLOCK = 0x0B
    MEMBER = 0x0D
    STRUCTURE_TYPE = 0x13
    TYPEDEF = 0x16
    INLINED_SUBROUTINE = 0x1D
    SUBRANGE_TYPE = 0x21
    BASE_TYPE = 0x24
    CONST_TYPE = 0x26
    SUBPROGRAM = 0x2E
    VARIABLE = 0x34
    VOLATILE_TYPE = 0x35


class Attribute(IntEnum):
    """The properties that are looked at (DWARF 4, figure 20)."""

    LOCATION = 0x02
    NAME = 0x03
    BYTE_SIZE = 0x0B
    STMT_LIST = 0x10
    LOW_PC = 0x11
    HIGH_PC = 0x12
    PRODUCER = 0x25
    UPPER_BOUND = 0x2F
    ABSTRACT_ORIGIN = 0x31
    ARTIFICIAL = 0x34
    COUNT = 0x37
    SPECIFICATION = 0x47
    TYPE = 0x49
    RANGES = 0x55
    CALL_FILE = 0x58
    CALL_LINE = 0x59


class Cursor:
    """Reading numbers from bytes, one after another."""

    def __init__(self, content: bytes, at: int = 0) -> None:
        self.content = content
        self.at = at

    def number(self, size: int, *, signed: bool = False) -> int:
        value = int.from_bytes(self.content[self.at : self.at + size], "little", signed=signed)
        self.at += size
        return value

    def uleb(self) -> int:
        """An unsigned number in groups of seven bits."""
        value = shift = 0
        while True:
            byte = self.content[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def sleb(self) -> int:
        """A signed number in groups of seven bits."""
        value = shift = 0
        while True:
            byte = self.content[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value - (1 << shift) if byte & 0x40 else value

    def block(self, size: int) -> bytes:
        taken = self.content[self.at : self.at + size]
        self.at += size
        return taken

    def text(self) -> str:
        end = self.content.index(b"\0", self.at)
        taken = self.content[self.at : end].decode(errors="replace")
        self.at = end + 1
        return taken


Value = int | str | bytes


@dataclass(slots=True)
class Entry:
    """One entry with what it says of itself, and the entries that it contains."""

    tag: int
    offset: int
    values: dict[int, Value]
    children: list[Entry] = field(default_factory=list)

    def number(self, attribute: Attribute) -> int | None:
        value = self.values.get(attribute)
        return value if isinstance(value, int) else None

    def text(self, attribute: Attribute) -> str:
        value = self.values.get(attribute)
        return value if isinstance(value, str) else ""

    def walk(self) -> Iterator[Entry]:
        """This one and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(slots=True)
class Unit:
    """What was compiled together; `by_offset` finds entries that others refer to."""

    root: Entry
    by_offset: dict[int, Entry]
    low_pc: int

    def referred(self, entry: Entry, *attributes: Attribute) -> Entry | None:
        for attribute in attributes:
            offset = entry.number(attribute)
            if offset is not None:
                return self.by_offset.get(offset)
        return None


_Shape = tuple[int, bool, tuple[tuple[int, int], ...]]


def units(elf: Elf) -> Iterator[Unit]:
    """The units of `elf`; those of other versions than 2 to 4 are left out."""
    info, abbreviations, texts = (elf.section(f".debug_{name}") for name in ("info", "abbrev", "str"))
    start = 0
    while start + 11 <= len(info):
        length, version, abbreviation_offset, _ = struct.unpack_from("<IHIB", info, start)
        if 2 <= version <= 4:
            shapes = _shapes(abbreviations, abbreviation_offset)
            unit = _Reader(info, start, start + 4 + length, shapes, texts).read()
            if unit is not None:
                yield unit
        start += 4 + length


def _shapes(abbreviations: bytes, offset: int) -> dict[int, _Shape]:
    """What entries of each code consist of (section 7.5.3)."""
    cursor, found = Cursor(abbreviations, offset), dict[int, _Shape]()
    while code := cursor.uleb():
        tag, has_children = cursor.uleb(), cursor.number(1) != 0
        fields = []
        while (pair := (cursor.uleb(), cursor.uleb())) != (0, 0):
            fields.append(pair)
        found[code] = (tag, has_children, tuple(fields))
    return found


class _Reader:
    """Reads the entries of one unit. References within it become offsets in the whole section."""

    def __init__(self, info: bytes, start: int, end: int, shapes: dict[int, _Shape], texts: bytes) -> None:
        self.cursor = Cursor(info, start + 11)
        self.start, self.end, self.shapes, self.texts = start, end, shapes, texts
        c = self.cursor
        self.forms: dict[int, Callable[[], Value]] = {
            0x01: lambda: c.number(8),  # addr
            0x03: lambda: c.block(c.number(2)),
            0x04: lambda: c.block(c.number(4)),
            0x05: lambda: c.number(2),
            0x06: lambda: c.number(4),
            0x07: lambda: c.number(8),
            0x08: c.text,
            0x09: lambda: c.block(c.uleb()),
            0x0A: lambda: c.block(c.number(1)),
            0x0B: lambda: c.number(1),
            0x0C: lambda: c.number(1),
            0x0D: c.sleb,
            0x0E: lambda: Cursor(self.texts, c.number(4)).text(),
            0x0F: c.uleb,
            0x10: lambda: c.number(4),  # ref_addr
            0x11: lambda: start + c.number(1),
            0x12: lambda: start + c.number(2),
            0x13: lambda: start + c.number(4),
            0x14: lambda: start + c.number(8),
            0x15: lambda: start + c.uleb(),
            0x17: lambda: c.number(4),  # sec_offset
            0x18: lambda: c.block(c.uleb()),  # exprloc
            0x19: lambda: 1,  # flag_present
            0x20: lambda: c.number(8),  # ref_sig8
        }

    def read(self) -> Unit | None:
        by_offset: dict[int, Entry] = {}
        root: Entry | None = None
        open_entries: list[Entry] = []
        while self.cursor.at < self.end:
            offset = self.cursor.at
            code = self.cursor.uleb()
            if code == 0:
                if open_entries:
                    open_entries.pop()
                continue
            tag, has_children, fields = self.shapes[code]
            entry = Entry(tag, offset, {name: self.forms[form]() for name, form in fields})
            by_offset[offset] = entry
            if open_entries:
                open_entries[-1].children.append(entry)
            root = root or entry
            if has_children:
                open_entries.append(entry)
        return Unit(root, by_offset, root.number(Attribute.LOW_PC) or 0) if root else None
