"""Python programs run beside the tests, with the same modules in reach."""

from __future__ import annotations

import os
import subprocess
import sys


def environment() -> dict[str, str]:
    """This process's environment, and its module search path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}


def python(program: str, *arguments: str) -> list[str]:
    """The command that runs `program`."""
    return [sys.executable, "-c", program, *arguments]


def output(program: str, *arguments: str) -> str:
    """What `program` prints. Raises RuntimeError, with its error output, where it fails."""
    command = python(program, *arguments)
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout
