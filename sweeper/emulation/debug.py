"""What a module's debugging information says: the line of an instruction, the name and shape of a variable."""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from sweeper.emulation.dwarf import Attribute, Entry, Tag, Unit, units
from sweeper.emulation.elf import STT_OBJECT, Elf, Symbol
from sweeper.emulation.lines import LineTable
from sweeper.emulation.native import INCLUDE_DIR

__all__ = ["DebugInfo", "Variable", "debug_info"]

_SYSTEM = ("/usr/", str(INCLUDE_DIR))
_PUSH_TLS = (0xE0, 0x9B)  # GNU's own operation, and the standard's
_CONSTANTS = {0x08: 1, 0x0A: 2, 0x0C: 4, 0x0E: 8}  # operations that push an unsigned number of so many bytes
_ADDRESS = 0x03
_LENGTH = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Variable:
    """`extents` are those of an array, none of anything else; `element_bytes` is what one element takes."""

    name: str
    offset: int
    size: int
    extents: tuple[int, ...] = ()
    element_bytes: int = 1

    def element(self, offset: int) -> str:
        """What lies `offset` bytes from the variable's start: `a_tile[3][17]`, `state+0x8`.

        Past the end, and before the start, the first index goes on counting.
        """
        if not self.extents:
            return f"{self.name}+{offset:#x}" if offset else self.name
        index, rest = divmod(offset, self.element_bytes)
        places: list[int] = []
        for extent in reversed(self.extents[1:]):
            index, place = divmod(index, extent)
            places.append(place)
        places.append(index)
        text = self.name + "".join(f"[{place}]" for place in reversed(places))
        return f"{text}+{rest:#x}" if rest else text


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


class DebugInfo:
    """Answers about one module. Without debugging information it knows names of functions and variables."""

    def __init__(self, elf: Elf) -> None:
        self._elf = elf

    @cached_property
    def _units(self) -> list[tuple[Unit, LineTable]]:
        lines = self._elf.section(".debug_line")
        found = []
        for unit in units(self._elf):
            offset = unit.root.number(Attribute.STMT_LIST)
            found.append((unit, LineTable() if offset is None else LineTable.read(lines, offset)))
        return found

    @cached_property
    def tells_returns(self) -> bool:
        """Whether a function's end has the line of the `return` that led there. Clang's functions end once."""
        return not any("clang" in unit.root.text(Attribute.PRODUCER) for unit, _ in self._units)

    def place(self, code: int) -> tuple[str, int]:
        """File (without folders) and line of the call that returns to `code`.

        Where a function of the system's headers, or one that is marked as artificial, was copied to
        there, it is the line that called it. The line is 0 where nobody knows it; the file is then the
        function's name in brackets, or `?`.
        """
        frames = [f for f in self._frames(code - 1) if f.file]
        own = [f for f in frames if not f.artificial and not f.file.startswith(_SYSTEM)]
        for frame in (*own, *frames):
            return Path(frame.file).name, frame.line
        name = next((s.name for s in self._elf.functions() if s.value <= code - 1 < s.value + s.size), "")
        return (f"<{name}>" if name else "?"), 0

    def _frames(self, address: int) -> list[_Frame]:
        """Where an instruction comes from, and the calls that it was copied through, innermost first."""
        for unit, table in self._units:
            place = table.find(address)
            if place is None:
                continue
            around = [i for i in self._inlined(unit, table) if any(a <= address < b for a, b in i.ranges)]
            around.sort(key=lambda i: -i.depth)
            places = [place, *((i.file, i.line) for i in around)]
            artificial = [*(i.artificial for i in around), False]
            return [_Frame(*p, marked) for p, marked in zip(places, artificial, strict=True)]
        return []

    def _inlined(self, unit: Unit, table: LineTable) -> Iterator[_Inlined]:
        todo = [(unit.root, 0)]
        while todo:
            entry, depth = todo.pop()
            todo += ((child, depth + 1) for child in entry.children)
            if entry.tag == Tag.INLINED_SUBROUTINE:
                yield _Inlined(
                    self._ranges(unit, entry),
                    table.file(entry.number(Attribute.CALL_FILE) or 0),
                    entry.number(Attribute.CALL_LINE) or 0,
                    depth,
                    _is_artificial(unit, entry),
                )

    def _ranges(self, unit: Unit, entry: Entry) -> tuple[tuple[int, int], ...]:
        low, high = entry.number(Attribute.LOW_PC), entry.number(Attribute.HIGH_PC)
        if low is not None and high is not None:
            return ((low, high if high > low else low + high),)
        offset = entry.number(Attribute.RANGES)
        if offset is None:
            return ()
        found, base = [], unit.low_pc
        for begin, end in struct.iter_unpack("<QQ", self._ranges_from(offset)):
            if begin == end == 0:
                break
            if begin == 2**64 - 1:
                base = end
            else:
                found.append((base + begin, base + end))
        return tuple(found)

    def _ranges_from(self, offset: int) -> bytes:
        section = self._elf.section(".debug_ranges")[offset:]
        return section[: len(section) // 16 * 16]

    @cached_property
    def guards(self) -> list[Symbol]:
        return self._elf.guards()

    @cached_property
    def shared_variables(self) -> tuple[Variable, ...]:
        """Static `__shared__` variables by their place."""
        described = {v.offset: v for v in self._described_variables(_PUSH_TLS)}
        return tuple(_described(described, symbol) for symbol in self._elf.shared_variables())

    @cached_property
    def device_variables(self) -> tuple[Variable, ...]:
        """`__device__` variables by their address, as far as debugging information tells them."""
        writable = self._elf.writable_ranges()
        sizes = {s.value: s.size for s in self._elf.symbols if s.kind == STT_OBJECT}
        found = {
            v.offset: replace(v, size=sizes[v.offset])
            for v in self._described_variables(())
            if sizes.get(v.offset) and any(a <= v.offset < b for a, b in writable)
        }
        return tuple(found[offset] for offset in sorted(found))

    def _described_variables(self, operations: tuple[int, ...]) -> Iterator[Variable]:
        for unit, _ in self._units:
            for entry in unit.root.walk():
                location = entry.values.get(Attribute.LOCATION)
                if entry.tag != Tag.VARIABLE or not isinstance(location, bytes):
                    continue
                offset = _offset(location, operations)
                if offset is not None:
                    yield _variable(unit, entry, offset)


def _is_artificial(unit: Unit, entry: Entry | None) -> bool:
    """Whether the function, or the one it is a copy of, is marked so; compilers mark a lambda's, too."""
    marked = False
    while entry is not None:
        if entry.text(Attribute.NAME) == "operator()":
            return False
        marked |= Attribute.ARTIFICIAL in entry.values
        entry = unit.referred(entry, Attribute.ABSTRACT_ORIGIN, Attribute.SPECIFICATION)
    return marked


def _offset(location: bytes, operations: tuple[int, ...]) -> int | None:
    """The number that `location` pushes; it ends with one of `operations`, where any are given."""
    size = 8 if location[:1] == bytes([_ADDRESS]) else _CONSTANTS.get(location[0]) if location else None
    if size is None or location[1 + size :] not in ([bytes([o]) for o in operations] or [b""]):
        return None
    return int.from_bytes(location[1 : 1 + size], "little")


def _described(described: dict[int, Variable], symbol: Symbol) -> Variable:
    known = described.get(symbol.value)
    if known is None or not known.name:
        return Variable(_plain_name(symbol.name), symbol.value, symbol.size)
    return Variable(known.name, symbol.value, symbol.size, known.extents, known.element_bytes)


def _plain_name(mangled: str) -> str:
    """The last name in `_ZZ4kernE6b_tile_0`."""
    best = mangled
    for match in _LENGTH.finditer(mangled):
        for start in range(match.start(), match.end()):
            length = int(mangled[start : match.end()])
            name = mangled[match.end() : match.end() + length]
            if 0 < length == len(name) and name.isidentifier():
                best = name
                break
    return best


def _variable(unit: Unit, entry: Entry, offset: int) -> Variable:
    declared: Entry | None = entry
    name, kind = "", None
    while declared is not None:
        name = name or declared.text(Attribute.NAME)
        kind = kind or unit.referred(declared, Attribute.TYPE)
        declared = unit.referred(declared, Attribute.ABSTRACT_ORIGIN, Attribute.SPECIFICATION)
    extents: list[int] = []
    while kind is not None and kind.tag not in (Tag.BASE_TYPE, Tag.STRUCTURE_TYPE):
        if kind.tag == Tag.ARRAY_TYPE:
            extents += [_extent(child) for child in kind.children if child.tag == Tag.SUBRANGE_TYPE]
        kind = unit.referred(kind, Attribute.TYPE)
    element_bytes = kind.number(Attribute.BYTE_SIZE) if kind is not None else None
    return Variable(name, offset, 0, tuple(extents), element_bytes or 1)


def _extent(subrange: Entry) -> int:
    count, last = subrange.number(Attribute.COUNT), subrange.number(Attribute.UPPER_BOUND)
    return count if count is not None else last + 1 if last is not None else 1


@functools.lru_cache(maxsize=8)
def _cached(path: Path, _size: int, _changed_ns: int) -> DebugInfo:
    return DebugInfo(Elf.of(path))


def debug_info(module: Path) -> DebugInfo:
    """What is known of `module`; read once as long as the file stays the same."""
    status = module.stat()
    return _cached(module, status.st_size, status.st_mtime_ns)
