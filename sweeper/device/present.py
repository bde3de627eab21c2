"""Whether this machine has a GPU that can be used, found out without starting CUDA in this process."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sys

__all__ = ["count_gpus", "why_no_gpu"]

_LIBRARY = "libcuda.so.1"
_ANSWER_S = 60.0
_COUNT = f"""
import ctypes
cuda = ctypes.CDLL({_LIBRARY!r})
count = ctypes.c_int(0)
found = cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
print(count.value if found else 0)
"""


def count_gpus() -> int:
    """How many GPUs CUDA finds, 0 without a driver. Asked in a process of its own.

    Raises TimeoutError where the driver does not answer.
    """
    if not _driver_loads():
        return 0
    try:
        asked = subprocess.run(
            [sys.executable, "-c", _COUNT],
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError("the CUDA driver does not answer") from None
    answer = asked.stdout.strip()
    return int(answer) if asked.returncode == 0 and answer.isdecimal() else 0


def why_no_gpu(*, ask: bool) -> str | None:
    """Why no GPU can be used, or None. Without `ask` the driver is not asked, only looked for."""
    if not _driver_loads():
        return "no GPU found"
    missing = importlib.util.find_spec("pycuda") is None
    try:
        if (ask or missing) and count_gpus() == 0:
            return "no GPU found"
    except TimeoutError as error:
        return str(error)
    return "a GPU is here but PyCUDA is not (python tools/install_pycuda.py installs it)" if missing else None


def _driver_loads() -> bool:
    """Whether the driver's library is there; loading it starts nothing."""
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return False
    return True
