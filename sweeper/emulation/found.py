"""A checked launch's list of findings, read and put into words."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sweeper.emulation.buffers import Buffer
from sweeper.emulation.debug import DebugInfo, debug_info
from sweeper.emulation.findings import Finding, FindingKind, Place
from sweeper.emulation.geometry import Geometry
from sweeper.emulation.report import outside
from sweeper.emulation.variables import Variable

__all__ = ["FINDINGS_BYTES", "read_findings", "refused", "variable_lines"]

# Messages that differ in numbers only are one: two kinds of overflow may be in one line.
_DIGITS = re.compile(r"-?\d+")
_MOST = 2048
_MOST_SHOWN = 100
_NOBODY = 2**32 - 1
_DYNAMIC_SHARED, _NULL, _STATIC_SHARED, _NO_MEMORY, _DEVICE = -2, -3, -4, -5, -6


class _Party(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint64),
        ("block", ctypes.c_uint64),
        ("thread", ctypes.c_uint32),
        ("doing", ctypes.c_uint32),
    )


class _Finding(ctypes.Structure):
    """runtime/check.h's Finding."""

    _fields_ = (
        ("wrong", ctypes.c_uint32),
        ("region", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("bytes", ctypes.c_uint32),
        ("line", ctypes.c_uint32),
        ("first", _Party),
        ("second", _Party),
        ("count", ctypes.c_uint64),
        ("file", ctypes.c_char * 128),
        ("text", ctypes.c_char * 160),
    )


class _Head(ctypes.Structure):
    _fields_ = (("count", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("dropped", ctypes.c_uint64))


FINDINGS_BYTES = ctypes.sizeof(_Head) + _MOST * ctypes.sizeof(_Finding)

# By the numbers of runtime/check.h's Wrong.
_KINDS = dict(enumerate((
    FindingKind.OUT_OF_BOUNDS, FindingKind.MISALIGNED, FindingKind.READ_ONLY, FindingKind.RACE_SHARED,
    FindingKind.RACE_GLOBAL, FindingKind.UNINITIALISED, FindingKind.PENDING_COPY, FindingKind.BARRIER_DIVERGENCE,
    FindingKind.BARRIER_AFTER_EXIT, FindingKind.DEADLOCK, FindingKind.WARP_MASK, FindingKind.INDEX_RANGE,
    FindingKind.OVERFLOW, FindingKind.ASSERT, FindingKind.TRAP,
), 1))  # fmt: skip
_OUT_OF_BOUNDS, _READ_ONLY = 1, 3
_LEAVES = 7
# By the numbers of runtime/check.h's Doing.
_ACCESS = {
    1: "read",
    2: "write",
    3: "asynchronous copy",
    4: "atomic update",
    5: "atomic or volatile read",
    6: "atomic or volatile write",
}


def variable_lines(module: Path) -> list[str]:
    """The request's lines for the variables of `module`."""
    debug = debug_info(module)
    return [
        *(f"variable {v.offset} {v.size}" for v in debug.shared_variables),
        *(f"guard {s.value} {s.size}" for s in debug.guards),
        *(f"device {v.offset} {v.size}" for v in debug.device_variables),
    ]


def refused(message: str) -> Finding:
    """A launch that no device takes."""
    return Finding(FindingKind.LAUNCH, message, Place("?", 0))


def read_findings(
    descriptor: int, module: Path, buffers: Sequence[Buffer], geometry: Geometry
) -> tuple[Finding, ...]:
    """What the launcher listed, once for each kind and pair of places, in the order of their first."""
    head = _Head.from_buffer_copy(os.pread(descriptor, ctypes.sizeof(_Head), 0))
    if not head.count:
        return ()
    size = ctypes.sizeof(_Finding)
    content = os.pread(descriptor, head.count * size, ctypes.sizeof(_Head))
    reader = _Reader(debug_info(module), buffers, geometry)
    merged: dict[object, Finding] = {}
    for i in range(head.count):
        finding = reader.finding(_Finding.from_buffer_copy(content, i * size))
        places = ((p.file, p.line) if p else None for p in (finding.first, finding.second))
        what = _DIGITS.sub("", finding.message) if finding.second is None else ""
        key = (finding.kind, what, *places)
        known = merged.get(key)
        merged[key] = finding if known is None else replace(known, count=known.count + finding.count)
    return tuple(merged.values())[:_MOST_SHOWN]


class _Reader:
    def __init__(self, debug: DebugInfo, buffers: Sequence[Buffer], geometry: Geometry) -> None:
        self.debug, self.buffers, self.geometry = debug, buffers, geometry

    def finding(self, raw: _Finding) -> Finding:
        second = self._place(raw.second) if raw.second.code else None
        first = self._place(raw.first)
        if raw.file:
            first = replace(first, file=Path(raw.file.decode(errors="replace")).name, line=raw.line)
        return Finding(
            kind=_KINDS[raw.wrong],
            message=self._message(raw),
            first=first,
            second=second,
            memory=self._memory(raw),
            count=raw.count,
        )

    def _place(self, party: _Party) -> Place:
        file, line = self.debug.places.place(party.code) if party.code else ("?", 0)
        if party.doing == _LEAVES and not self.debug.places.tells_returns:
            line = 0
        if party.thread == _NOBODY:
            return Place(file, line)
        return Place(
            file, line, _along(party.thread, self.geometry.block), _along(party.block, self.geometry.grid)
        )

    def _message(self, raw: _Finding) -> str:
        text: str = raw.text.decode(errors="replace")
        access = _ACCESS.get(raw.first.doing, "access")
        if raw.wrong == _READ_ONLY:
            return outside(self.buffers[raw.region], raw.offset, "write")
        if raw.wrong != _OUT_OF_BOUNDS:
            return text
        if 0 <= raw.region < len(self.buffers):
            return _outside_array(self.buffers[raw.region], raw.offset, raw.bytes, access)
        if raw.region == _DYNAMIC_SHARED:
            has = self.geometry.shared_bytes
            return f"{access} of byte {raw.offset} of dynamic shared memory, which has {has} bytes"
        nearest = self._nearest(raw)
        if nearest is not None:
            side = "before the start" if raw.offset < nearest.offset else "past the end"
            return f"{access} of {raw.bytes} bytes {side} of {nearest.name}, which has {nearest.size}"
        if raw.region == _NULL:
            return f"{access} through a null pointer, at {raw.offset} bytes from it"
        return f"{access} of an address that belongs to no array"

    def _nearest(self, raw: _Finding) -> Variable | None:
        variables = {
            _STATIC_SHARED: self.debug.shared_variables,
            _DEVICE: self.debug.device_variables,
        }
        return _nearest(variables.get(raw.region, ()), raw.offset)

    def _memory(self, raw: _Finding) -> str:
        if raw.region == _NO_MEMORY:
            return ""
        if 0 <= raw.region < len(self.buffers):
            buffer: Buffer = self.buffers[raw.region]
            return buffer.element(raw.offset)
        if raw.region == _DYNAMIC_SHARED:
            return f"dynamic shared{raw.offset:+#x}"
        variable = self._nearest(raw)
        if variable is not None:
            space = "shared " if raw.region == _STATIC_SHARED else ""
            return space + variable.element(raw.offset - variable.offset)
        return "null" if raw.region == _NULL else "unknown memory"


def _outside_array(buffer: Buffer, offset: int, size: int, access: str) -> str:
    if 0 <= offset < buffer.nbytes and not buffer.in_gap(offset):
        where = buffer.element(offset)
        if buffer.in_gap(offset, size):
            return f"{access} of {size} bytes at {where} that reaches past the end of its row"
        return f"{access} of {size} bytes at {where} that reaches past the end of {buffer.name}"
    return outside(buffer, offset, access)


def _nearest(variables: Sequence[Variable], offset: int) -> Variable | None:
    """The variable that holds `offset`, else the one that it is nearest to."""

    def distance(v: Variable) -> int:
        return max(v.offset - offset, offset - (v.offset + v.size) + 1, 0)

    return min(variables, key=distance, default=None)


def _along(linear: int, sizes: tuple[int, int, int]) -> tuple[int, int, int]:
    x, y, _ = sizes
    return linear % x, linear // x % y, linear // (x * y)
