"""What a launch came to, in words: the launcher's report page read and explained."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from sweeper.emulation.buffers import Buffer
from sweeper.emulation.findings import Finding

__all__ = ["REPORT_BYTES", "Argument", "Fault", "LaunchReport", "Scalar", "read_report"]


class Fault(StrEnum):
    """Why a launch failed. The first group is the kernel's doing, the second its caller's or the host's."""

    ILLEGAL_ADDRESS = "illegal_address"
    MISALIGNED_ADDRESS = "misaligned_address"
    ARITHMETIC = "arithmetic"
    ILLEGAL_INSTRUCTION = "illegal_instruction"
    LOCAL_MEMORY = "local_memory"
    TRAP = "trap"
    ASSERTION = "assertion"
    DEADLOCK = "deadlock"
    WARP = "warp"
    BARRIER = "barrier"
    OVERRUN = "overrun"
    BETWEEN_ROWS = "between_rows"
    TIMEOUT = "timeout"

    ARGUMENT = "argument"
    LAUNCH = "launch"
    MODULE = "module"
    CRASH = "crash"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A by-value argument, passed as exactly the bytes of `value`."""

    name: str
    value: np.generic


Argument = Buffer | Scalar


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """How a launch ended.

    `kind` is None where it went through; else `message` says what happened, without addresses, times
    or process ids, so that the same launch gives the same text. `thread` and `block` are indices where
    a thread is to blame. `hazards` are what current hardware tolerates but CUDA does not promise.
    `printed` is what the kernel printed, cut at 64 KiB. `cpu_s` is processor time of all workers;
    `switches` counts how often one thread of a block took over from another. `findings` is what a checked
    launch found; such a launch is clean where `ok` is true and there are none.
    """

    ok: bool
    kind: Fault | None = None
    message: str = ""
    thread: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    cpu_s: float = 0.0
    switches: int = 0
    printed: str = ""
    hazards: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @classmethod
    def failed(cls, kind: Fault, message: str) -> LaunchReport:
        return cls(ok=False, kind=kind, message=message)


_TEXT_BYTES = 480
_PRINTED_BYTES = 1 << 16
_VERSION = 1
_FINISHED, _FAILED = 1, 2
_READ, _WRITE = 1, 2
_DYNAMIC_SHARED, _NULL = -2, -3


class _Hazard(ctypes.Structure):
    _fields_ = (
        ("ordinal", ctypes.c_uint64),
        ("found", ctypes.c_uint32),
        ("line", ctypes.c_uint32),
        ("other_line", ctypes.c_uint32),
        ("exited", ctypes.c_uint32),
        ("block", ctypes.c_uint32 * 3),
        ("reserved", ctypes.c_uint32),
    )


class _Page(ctypes.Structure):
    """runtime/report.h's Report."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("state", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("access", ctypes.c_uint32),
        ("region", ctypes.c_int32),
        ("line", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("ordinal", ctypes.c_uint64),
        ("in_thread", ctypes.c_uint32),
        ("thread", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("printed", ctypes.c_uint32),
        ("dropped", ctypes.c_uint64),
        ("switches", ctypes.c_uint64),
        ("cpu_ns", ctypes.c_uint64),
        ("hazard", _Hazard),
        ("text", ctypes.c_char * _TEXT_BYTES),
        ("output", ctypes.c_char * _PRINTED_BYTES),
    )


REPORT_BYTES = ctypes.sizeof(_Page)

# By the numbers of runtime/report.h's Kind.
_KINDS: dict[int, Fault] = {
    1: Fault.ILLEGAL_ADDRESS,
    2: Fault.MISALIGNED_ADDRESS,
    3: Fault.ARITHMETIC,
    4: Fault.ILLEGAL_INSTRUCTION,
    5: Fault.LOCAL_MEMORY,
    6: Fault.TRAP,
    7: Fault.ASSERTION,
    8: Fault.DEADLOCK,
    9: Fault.WARP,
    10: Fault.BARRIER,
    11: Fault.ARGUMENT,
    12: Fault.MODULE,
    13: Fault.CRASH,
    14: Fault.OVERRUN,
}


def read_report(
    page: bytes | bytearray | memoryview,
    arguments: Sequence[Argument],
    buffers: Sequence[Buffer],
    *,
    shared_bytes: int,
    how_it_ended: str,
) -> LaunchReport:
    """The report on `page`. `buffers` are numbered as the request numbered them; `how_it_ended` is said
    where the launcher left no report."""
    raw = _Page.from_buffer_copy(page)
    report = LaunchReport(
        ok=raw.state == _FINISHED,
        cpu_s=raw.cpu_ns / 1e9,
        switches=raw.switches,
        printed=_printed(bytes(memoryview(page)[_Page.output.offset :][: raw.printed]), raw.dropped),
        hazards=_hazards(raw.hazard),
    )
    if report.ok:
        return report
    if raw.state != _FAILED:
        return replace(report, kind=Fault.CRASH, message=how_it_ended)
    kind = _KINDS.get(raw.kind, Fault.CRASH)
    message = _explain(raw, kind, arguments, buffers, shared_bytes)
    if not raw.in_thread:
        return replace(report, kind=kind, message=message)
    thread, block = _triple(raw.thread), _triple(raw.block)
    return replace(
        report, kind=kind, message=f"{message}, thread {thread} of block {block}", thread=thread, block=block
    )


def _triple(values: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = values
    return x, y, z


def _explain(
    raw: _Page, kind: Fault, arguments: Sequence[Argument], buffers: Sequence[Buffer], shared_bytes: int
) -> str:
    text = bytes(raw.text).decode(errors="replace")
    if kind is Fault.ILLEGAL_ADDRESS:
        return _illegal_address(
            raw, {_READ: "read", _WRITE: "write"}.get(raw.access, "access"), buffers, shared_bytes
        )
    if kind is Fault.OVERRUN:
        return _overrun_of_shared(raw.offset, shared_bytes)
    if kind is Fault.LOCAL_MEMORY:
        return f"local memory exhausted ({int(text) // 1024} KiB a thread)"
    if kind is Fault.ARGUMENT and 0 <= raw.region < len(arguments):
        return f"argument {raw.region + 1} ({arguments[raw.region].name}): {text}"
    return _PREFIX.get(kind, "") + (text or _SENTENCE.get(kind, str(kind)))


_PREFIX = {Fault.ASSERTION: "assertion failed: ", Fault.MODULE: "the module cannot be loaded: "}
_SENTENCE = {
    Fault.MISALIGNED_ADDRESS: "an access that is not aligned to its size, or to an address that no array can have",
    Fault.ARITHMETIC: "integer division by zero, or of the smallest integer by -1",
    Fault.ILLEGAL_INSTRUCTION: "an instruction that this processor does not have",
}


def _illegal_address(raw: _Page, access: str, buffers: Sequence[Buffer], shared_bytes: int) -> str:
    if raw.region == _NULL:
        return f"{access} through a null pointer, at {raw.offset} bytes from it"
    if raw.region == _DYNAMIC_SHARED:
        return f"{access} of byte {raw.offset} of dynamic shared memory, which has {shared_bytes} bytes"
    if 0 <= raw.region < len(buffers):
        return outside(buffers[raw.region], raw.offset, access)
    return f"{access} of an address that belongs to no array"


def outside(buffer: Buffer, offset: int, access: str) -> str:
    """What an access `offset` bytes from the start of `buffer` is."""
    element = offset // buffer.dtype.itemsize
    apart = f", rows {buffer.pitch} apart" if buffer.has_gaps else ""
    extent = f"{buffer.name} ({'×'.join(map(str, buffer.shape))} {buffer.dtype}{apart})"
    if buffer.in_gap(offset):
        return f"{access} of {buffer.element(offset)}, between the rows of {extent}"
    if element < 0:
        return f"{access} of element {element}, before the start of {extent}"
    if element >= buffer.size:
        return f"{access} of element {element}, past the end of {extent}, which has {buffer.size}"
    index = buffer.element(element * buffer.dtype.itemsize).removeprefix(buffer.name).strip("[]")
    if access == "write" and not buffer.writable:
        return f"write to read-only input {buffer.name} at element [{index}]"
    return f"{access} of element [{index}] of {extent}"


def _overrun_of_shared(offset: int, shared_bytes: int) -> str:
    where = "before the start" if offset < 0 else "past the end"
    return f"write {where} of dynamic shared memory ({shared_bytes} bytes), to byte {offset}"


def _printed(output: bytes, dropped: int) -> str:
    text = output.decode(errors="replace")
    return f"{text}… and {dropped} more bytes" if dropped else text


def _hazards(hazard: _Hazard) -> tuple[str, ...]:
    if not hazard.found:
        return ()
    block = _triple(hazard.block)
    if hazard.exited:
        count = f"{hazard.exited} threads of block {block} had exited"
        return (f"__syncthreads() in line {hazard.line} after {count}",)
    lines = sorted((hazard.line, hazard.other_line))
    return (f"threads of block {block} meet at different barriers, in lines {lines[0]} and {lines[1]}",)
