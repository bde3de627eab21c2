"""Holds the SM clocks of GPUs until its standard input ends: `python -m sweeper.device.clock_keeper CLOCK ID…`.

CLOCK is `base`, `max` or MHz, each ID a PCI bus id. One line of JSON says that the clocks are held, or in
`error` and `hint` why none is. Ends with 0 once every clock has been given back.
"""

from __future__ import annotations

import importlib
import json
import signal
import sys
from collections.abc import Sequence
from typing import Any

from sweeper.device.clocks import Clock, limits_of, reset

__all__ = ["run"]


def run(args: Sequence[str]) -> int:
    """Hold, wait, give back; the exit status."""
    # Whoever wants this to end closes the pipe; a signal must not leave clocks behind.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    clock: Clock = int(args[0]) if args[0].isdecimal() else args[0]
    held: list[str] = []
    try:
        nv = importlib.import_module("pynvml")
        nv.nvmlInit()
    except Exception as error:
        return _say(error=f"NVML cannot be used: {error}", hint="install nvidia-ml-py and NVIDIA's driver")
    try:
        for pci_bus_id in args[1:]:
            handle = nv.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
            nv.nvmlDeviceSetGpuLockedClocks(handle, *limits_of(nv, handle, clock))
            held.append(pci_bus_id)
    except Exception as error:
        reset(held, nv)
        return _say(**_why(nv, error, pci_bus_id, clock))
    _say()
    sys.stdin.buffer.read()
    return 1 if reset(held, nv) else 0


def _why(nv: Any, error: Exception, pci_bus_id: str, clock: Clock) -> dict[str, str]:
    if isinstance(error, getattr(nv, "NVMLError_NoPermission", ())):
        return {
            "error": f"no permission to set the clocks of GPU {pci_bus_id}",
            "hint": "run as root (in a container also with CAP_SYS_ADMIN), or leave measure.lock_clocks=null",
        }
    if isinstance(error, getattr(nv, "NVMLError_NotSupported", ())):
        return {
            "error": f"GPU {pci_bus_id} cannot hold a clock",
            "hint": "leave measure.lock_clocks=null",
        }
    return {
        "error": f"GPU {pci_bus_id} does not take the clock {clock}: {error}",
        "hint": "see nvidia-smi -q -d SUPPORTED_CLOCKS, or leave measure.lock_clocks=null",
    }


def _say(**told: str) -> int:
    """Print the one line; 2 where it tells of an error."""
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    return 2 if told else 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
