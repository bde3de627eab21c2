"""Running one kernel of a module once, in a process of its own, until a deadline."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from sweeper.emulation.buffers import Buffer
from sweeper.emulation.children import end_group, finished_before
from sweeper.emulation.findings import Finding
from sweeper.emulation.found import FINDINGS_BYTES, read_findings, refused, variable_lines
from sweeper.emulation.geometry import Geometry, Limits, Order
from sweeper.emulation.report import REPORT_BYTES, Argument, Fault, LaunchReport, outside, read_report
from sweeper.emulation.request import Files, chosen_blocks, request_lines
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
    checked: bool = False,
    stack_bytes: int = _STACK_BYTES,
    limits: Limits | None = None,
    deadline_s: float = 10.0,
) -> LaunchReport:
    """Run kernel number `kernel` of `module`, all its blocks or those with the linear indices `blocks`.

    What the kernel writes is in its buffers' arrays afterwards. `workers` OS threads share the blocks;
    with any number of them the same report comes of the same launch. `strict` makes hazards faults.
    Whatever the kernel does, it does to a process that has ended when this returns.

    `checked` takes a module that was compiled so. What is wrong, hazards too, is then in the report's
    `findings`, and the launch goes on after it as far as it can; one worker runs all blocks.
    """
    broken = geometry.broken_limit(limits or Limits())
    if broken:
        failed = LaunchReport.failed(Fault.LAUNCH, broken)
        return replace(failed, findings=(refused(broken),)) if checked else failed
    lines = request_lines(
        module,
        arguments,
        geometry,
        kernel=kernel,
        order=order,
        seed=seed,
        workers=1 if checked else workers,
        strict=strict,
        # Less of a checked module's code lives in registers.
        stack_bytes=2 * stack_bytes if checked else stack_bytes,
    )
    if blocks is not None:
        blocks = chosen_blocks(blocks, geometry)
    return _Launch(launcher, module, arguments, geometry, blocks).run(lines, deadline_s, checked=checked)


@dataclass(frozen=True, slots=True)
class _Launch:
    launcher: Path
    module: Path
    arguments: Sequence[Argument]
    geometry: Geometry
    blocks: npt.NDArray[Any] | None

    def run(self, lines: list[str], deadline_s: float, *, checked: bool) -> LaunchReport:
        buffers = [a for a in self.arguments if isinstance(a, Buffer)]
        findings: tuple[Finding, ...] = ()
        with Files() as files:
            if self.blocks is not None:
                lines.append(f"blocks {files.holding(self.blocks.tobytes())} {self.blocks.size}")
            listed = files.empty(FINDINGS_BYTES) if checked else -1
            if checked:
                lines += [f"checked {listed}", *variable_lines(self.module)]
            request = files.holding("".join(f"{line}\n" for line in lines).encode())
            report = files.empty(REPORT_BYTES)
            inherited = (*files.descriptors, *(b.descriptor for b in buffers))
            ended = _run(self.launcher, request, report, inherited, deadline_s)
            page = os.pread(report, REPORT_BYTES, 0)
            if checked:
                findings = read_findings(listed, self.module, buffers, self.geometry)
        found = read_report(
            page,
            self.arguments,
            buffers,
            shared_bytes=self.geometry.shared_bytes,
            how_it_ended=_ended_badly(ended),
        )
        found = replace(found, findings=findings)
        if ended is None and found.kind is Fault.CRASH:
            return replace(
                found, cpu_s=0.0, kind=Fault.TIMEOUT, message=f"still running after {deadline_s:g} s"
            )
        if checked:
            for buffer in buffers:
                buffer.overrun()  # whoever wrote there is among the findings
                buffer.gap_write()
            return found
        return _with_overrun(found, buffers) if found.ok else found


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
    """`report`, or the fault that it did not see: a write into the last bytes before an inaccessible page,
    or between the rows of an array."""
    for buffer in buffers:
        offset = buffer.overrun() if buffer.writable else None
        if offset is not None:
            return _overran(report, buffer, Fault.OVERRUN, offset)
        offset = buffer.gap_write() if buffer.writable else None
        if offset is not None:
            return _overran(report, buffer, Fault.BETWEEN_ROWS, offset)
    return report


def _overran(report: LaunchReport, buffer: Buffer, kind: Fault, offset: int) -> LaunchReport:
    message = outside(buffer, offset, "write")
    return LaunchReport(ok=False, kind=kind, message=message, cpu_s=report.cpu_s, printed=report.printed)
