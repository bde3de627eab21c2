"""Which line of source an instruction is there for (DWARF 4, sections 3.3.8 and 6.2)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sweeper.emulation.dwarf import Attribute, Entry, Tag, Unit
from sweeper.emulation.elf import Elf
from sweeper.emulation.lines import LineTable
from sweeper.emulation.native import INCLUDE_DIR

__all__ = ["Places"]

_SYSTEM = ("/usr/", str(INCLUDE_DIR))


@dataclass(frozen=True, slots=True)
class _Inlined:
    """Instructions that were copied to where they are from a function called in `file`, line `line`."""

    ranges: tuple[tuple[int, int], ...]
    file: str
    line: int
    depth: int
    artificial: bool


@dataclass(frozen=True, slots=True)
class _Frame:
    """A line, and whether the function that it is part of stands for something else."""

    file: str
    line: int
    artificial: bool


@dataclass(frozen=True, slots=True)
class _Described:
    """A unit's lines, and everything in it that was inlined."""

    lines: LineTable
    inlined: tuple[_Inlined, ...]


class Places:
    """Answers about the instructions of one module."""

    def __init__(self, elf: Elf, units: Sequence[Unit]) -> None:
        self._elf = elf
        self._units = units
        self._known: dict[int, tuple[str, int]] = {}

    @cached_property
    def tells_returns(self) -> bool:
        """Whether a function's end has the line of the `return` that led there. Clang's functions end once."""
        return not any("clang" in unit.root.text(Attribute.PRODUCER) for unit in self._units)

    def place(self, code: int) -> tuple[str, int]:
        """File (without folders) and line of the call that returns to `code`.

        Where a function of the system's headers, or one that is marked as artificial, was copied to
        there, it is the line that called it. The line is 0 where nobody knows it; the file is then the
        function's name in brackets, or `?`.
        """
        known = self._known.get(code)
        if known is None:
            known = self._known[code] = self._find(code - 1)
        return known

    def _find(self, address: int) -> tuple[str, int]:
        frames = [f for f in self._frames(address) if f.file]
        own = [f for f in frames if not f.artificial and not f.file.startswith(_SYSTEM)]
        for frame in (*own, *frames):
            return Path(frame.file).name, frame.line
        name = next((s.name for s in self._elf.functions() if s.value <= address < s.value + s.size), "")
        return (f"<{name}>" if name else "?"), 0

    def _frames(self, address: int) -> list[_Frame]:
        """Where an instruction comes from, and the calls that it was copied through, innermost first."""
        for described in self._described:
            place = described.lines.find(address)
            if place is None:
                continue
            around = [i for i in described.inlined if any(a <= address < b for a, b in i.ranges)]
            around.sort(key=lambda i: -i.depth)
            places = [place, *((i.file, i.line) for i in around)]
            artificial = [*(i.artificial for i in around), False]
            return [_Frame(*p, marked) for p, marked in zip(places, artificial, strict=True)]
        return []

    @cached_property
    def _described(self) -> list[_Described]:
        section, ranges = (self._elf.section(f".debug_{name}") for name in ("line", "ranges"))
        found = []
        for unit in self._units:
            offset = unit.root.number(Attribute.STMT_LIST)
            lines = LineTable() if offset is None else LineTable.read(section, offset)
            found.append(_Described(lines, tuple(_inlined(unit, lines, ranges))))
        return found


def _inlined(unit: Unit, lines: LineTable, ranges: bytes) -> Iterator[_Inlined]:
    todo = [(unit.root, 0)]
    while todo:
        entry, depth = todo.pop()
        todo += ((child, depth + 1) for child in entry.children)
        if entry.tag == Tag.INLINED_SUBROUTINE:
            yield _Inlined(
                tuple(_ranges(unit, entry, ranges)),
                lines.file(entry.number(Attribute.CALL_FILE) or 0),
                entry.number(Attribute.CALL_LINE) or 0,
                depth,
                _is_artificial(unit, entry),
            )


def _ranges(unit: Unit, entry: Entry, section: bytes) -> Iterator[tuple[int, int]]:
    """The addresses that `entry` covers (section 2.17)."""
    low, high = entry.number(Attribute.LOW_PC), entry.number(Attribute.HIGH_PC)
    offset = entry.number(Attribute.RANGES)
    if low is not None and high is not None:
        yield low, high if high > low else low + high
    elif offset is not None:
        base = unit.low_pc
        listed = section[offset : offset + (len(section) - offset) // 16 * 16]
        for begin, end in struct.iter_unpack("<QQ", listed):
            if begin == end == 0:
                return
            if begin == 2**64 - 1:
                base = end
            else:
                yield base + begin, base + end


def _is_artificial(unit: Unit, entry: Entry | None) -> bool:
    """Whether the function, or the one it is a copy of, is marked so; compilers mark a lambda's, too."""
    marked = False
    while entry is not None:
        if entry.text(Attribute.NAME) == "operator()":
            return False
        marked |= Attribute.ARTIFICIAL in entry.values
        entry = unit.referred(entry, Attribute.ABSTRACT_ORIGIN, Attribute.SPECIFICATION)
    return marked
