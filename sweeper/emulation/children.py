"""A child process that is waited for without polling, and whose whole group ends with it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time

__all__ = ["end_group", "finished_before"]


def finished_before(process: subprocess.Popen[bytes], deadline: float) -> bool:
    """Whether `process` ended by `deadline` (of `time.monotonic`). It is not reaped yet either way."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:  # a kernel before 5.3
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        return process.returncode is not None
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
    finally:
        os.close(descriptor)


def end_group(process: subprocess.Popen[bytes]) -> int:
    """Kill what is left of the group that `process` leads, and reap it; its exit code, or minus a signal."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()
