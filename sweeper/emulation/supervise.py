"""Runs a command that ends, with all it started, when the process that asked for it is gone.

    python supervise.py PID COMMAND…

For the first compile of the emulator: from then on its launcher does the same. It is run as a file, without the
package, so that it starts in a few milliseconds.
"""

import os
import select
import signal
import subprocess
import sys

__all__ = ["main"]


def main(asked_by: int, command: list[str]) -> int:
    """Run `command` in this process's group, which ends with process `asked_by`; its exit code, or minus a signal."""
    try:
        watched = os.pidfd_open(asked_by)
    except ProcessLookupError:
        return 1
    except OSError:  # a kernel before 5.3
        return subprocess.call(command)
    with subprocess.Popen(command) as process:
        poller = select.poll()
        ended = os.pidfd_open(process.pid)
        for descriptor in (watched, ended):
            poller.register(descriptor, select.POLLIN)
        if ended not in (descriptor for descriptor, _ in poller.poll()):
            os.killpg(0, signal.SIGKILL)
        return process.wait()


if __name__ == "__main__":
    try:
        status = main(int(sys.argv[1]), sys.argv[2:])
    except OSError as error:
        sys.exit(f"{sys.argv[2]}: error: {error.strerror}")
    if status < 0:
        os.kill(os.getpid(), -status)
    sys.exit(status)
