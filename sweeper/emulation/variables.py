"""Names, places and shapes of a module's variables, from its debugging information and its symbols."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sweeper.emulation.dwarf import Attribute, Entry, Tag, Unit
from sweeper.emulation.elf import STT_OBJECT, Elf, Symbol

__all__ = ["Variable", "device_variables", "shared_variables"]

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


def shared_variables(elf: Elf, units: Sequence[Unit]) -> tuple[Variable, ...]:
    """Static `__shared__` variables by their place in a block's memory."""
    described = {v.offset: v for v in _variables(units, _PUSH_TLS)}
    return tuple(_described(described, symbol) for symbol in elf.shared_variables())


def device_variables(elf: Elf, units: Sequence[Unit]) -> tuple[Variable, ...]:
    """`__device__` variables by their address, as far as debugging information tells them."""
    writable = elf.writable_ranges()
    sizes = {s.value: s.size for s in elf.symbols if s.kind == STT_OBJECT}
    found = {
        v.offset: replace(v, size=sizes[v.offset])
        for v in _variables(units, ())
        if sizes.get(v.offset) and any(a <= v.offset < b for a, b in writable)
    }
    return tuple(found[offset] for offset in sorted(found))


def _variables(units: Sequence[Unit], operations: tuple[int, ...]) -> Iterator[Variable]:
    for unit in units:
        for entry in unit.root.walk():
            location = entry.values.get(Attribute.LOCATION)
            if entry.tag == Tag.VARIABLE and isinstance(location, bytes):
                offset = _offset(location, operations)
                if offset is not None:
                    yield _variable(unit, entry, offset)


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
