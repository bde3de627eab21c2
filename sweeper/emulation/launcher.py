"""Running one kernel of a module once, in a process of its own, until a deadline."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from sweeper.emulation.buffers import Buffer
from sweeper.emulation.children import end_group, finished_before
from sweeper.emulation.geometry import Geometry, Limits, Order
from sweeper.emulation.report import REPORT_BYTES, Argument, Fault, LaunchReport, outside, read_report
from sweeper.errors import SetupError

__all__ = ["launch"]

_STACK_BYTES = 128 << 10


def launch(
    launcher: Path,
    module: Path,
    arguments: Sequence[Argument],
    geometry: Geometry,
    *,
    kernel: int = 0,
    blocks: npt.NDArray[Any] | None = None,
    order: Order = Order.FORWARD,
    seed: int = 0,
    workers: int = 1,
    strict: bool = False,
    stack_bytes: int = _STACK_BYTES,
    limits: Limits | None = None,
    deadline_s: float = 10.0,
) -> LaunchReport:
    """Run kernel number `kernel` of `module`, all its blocks or those with the linear indices `blocks`.

    What the kernel writes is in its buffers' arrays afterwards. `workers` OS threads share the blocks;
    with any number of them the same report comes of the same launch. `strict` makes hazards faults.
    Whatever the kernel does, it does to a process that has ended when this returns.
    """
    broken = geometry.broken_limit(limits or Limits())
    if broken:
        return LaunchReport.failed(Fault.LAUNCH, broken)
    chosen = _checked(blocks, geometry)
    buffers = [a for a in arguments if isinstance(a, Buffer)]
    lines = [
        f"module {module.resolve()}",
        f"kernel {kernel}",
        f"grid {_words(geometry.grid)}",
        f"block {_words(geometry.block)}",
        f"shared {geometry.shared_bytes}",
        f"stack {-(-stack_bytes // mmap.PAGESIZE) * mmap.PAGESIZE}",
        f"order {int(order)}",
        f"seed {seed % 2**64}",
        f"workers {max(1, workers)}",
        f"strict {int(strict)}",
        *(_buffer_line(b) for b in buffers),
        *_argument_lines(arguments),
    ]
    with _Files() as files:
        if chosen is not None:
            lines.append(f"blocks {files.holding(chosen.tobytes())} {chosen.size}")
        request = files.holding("".join(f"{line}\n" for line in lines).encode())
        report = files.empty(REPORT_BYTES)
        ended = _run(
            launcher, request, report, (*files.descriptors, *(b.descriptor for b in buffers)), deadline_s
        )
        page = os.pread(report, REPORT_BYTES, 0)
    found = read_report(
        page, arguments, buffers, shared_bytes=geometry.shared_bytes, how_it_ended=_ended_badly(ended)
    )
    if ended is None and found.kind is Fault.CRASH:
        return LaunchReport(
            ok=False,
            kind=Fault.TIMEOUT,
            message=f"still running after {deadline_s:g} s",
            printed=found.printed,
        )
    return found if not found.ok else _with_overrun(found, buffers)


def _checked(blocks: npt.NDArray[Any] | None, geometry: Geometry) -> npt.NDArray[np.uint64] | None:
    if blocks is None:
        return None
    chosen = np.ascontiguousarray(blocks, np.uint64)
    if chosen.ndim != 1 or chosen.size == 0 or int(chosen.max()) >= geometry.blocks:
        raise ValueError(f"blocks are linear indices below {geometry.blocks}, at least one")
    return chosen


def _words(values: Sequence[int]) -> str:
    return " ".join(str(int(v)) for v in values)


def _kind(dtype: np.dtype[Any]) -> str:
    """abi.h's letter for a NumPy type."""
    if dtype.name == "bfloat16":
        return "b"
    if dtype.kind == "f":
        return "h" if dtype.itemsize == 2 else "f"
    return "i" if dtype.kind in "iub" else "s"


def _buffer_line(b: Buffer) -> str:
    return f"buffer {b.descriptor} {b.map_bytes} {b.offset} {b.nbytes} {b.dtype.itemsize} {int(b.writable)}"


def _argument_lines(arguments: Sequence[Argument]) -> list[str]:
    lines, number = [], 0
    for argument in arguments:
        if isinstance(argument, Buffer):
            lines.append(f"array {number} {_kind(argument.dtype)} {int(argument.writable)}")
            number += 1
        else:
            lines.append(f"scalar {_kind(argument.value.dtype)} {argument.value.tobytes().hex()}")
    return lines


class _Files:
    """Memory files for one launch, closed together."""

    def __init__(self) -> None:
        self.descriptors: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)

    def empty(self, size: int) -> int:
        descriptor = os.memfd_create("sweeper-launch", os.MFD_CLOEXEC)
        self.descriptors.append(descriptor)
        os.ftruncate(descriptor, size)
        return descriptor

    def holding(self, content: bytes) -> int:
        descriptor = self.empty(len(content))
        os.pwrite(descriptor, content, 0)
        return descriptor


def _run(
    launcher: Path, request: int, report: int, descriptors: Sequence[int], deadline_s: float
) -> int | None:
    """The launcher's exit code (minus a signal), or None where the deadline ended it."""
    try:
        process = subprocess.Popen(
            [str(launcher), str(request), str(report), str(os.getpid())],
            cwd="/",
            env={"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=descriptors,
            start_new_session=True,
        )
    except OSError as error:
        raise SetupError(
            f"the emulator's launcher {launcher} does not run: {error.strerror}",
            hint="set SWEEPER_CACHE to a folder that programs may be run from",
        ) from None
    in_time = False
    try:
        in_time = finished_before(process, time.monotonic() + deadline_s)
    finally:
        code = end_group(process)
    return code if in_time else None


def _ended_badly(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        return f"the process that ran the kernel was killed by {name}"
    return f"the process that ran the kernel ended with code {code}"


def _with_overrun(report: LaunchReport, buffers: Sequence[Buffer]) -> LaunchReport:
    """`report`, or the fault that it did not see: a write into the last bytes before an inaccessible page."""
    for buffer in buffers:
        offset = buffer.overrun() if buffer.writable else None
        if offset is not None:
            message = outside(buffer, offset, "write")
            return LaunchReport(
                ok=False, kind=Fault.OVERRUN, message=message, cpu_s=report.cpu_s, printed=report.printed
            )
    return report
