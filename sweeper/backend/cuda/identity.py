"""Which device it is, and that nobody else is on it."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import tempfile
import time
from pathlib import Path

from sweeper.device import DeviceIdentity
from sweeper.device.nvml import Nvml
from sweeper.errors import SetupError

__all__ = ["claim", "device_uuid", "identified", "no_such_device"]

# How long a process that has just been killed may still be listed on the device, and hold its lock.
_LINGER_S = 5.0


def claim(index: int, pci_bus_id: str, nvml: Nvml) -> int | None:
    """Hold a device alone among our own workers, and see that nobody else is on it.

    Called before our own context is there: whoever is on the device is somebody else. Gives the lock's
    file descriptor (None where no lock can be had); closing it gives the device up. Raises SetupError
    naming who uses the device.
    """
    lock = _open_lock(f"sweeper-gpu-{pci_bus_id.replace(':', '-')}.lock")
    end = time.monotonic() + _LINGER_S
    while (user := _user(lock, pci_bus_id, nvml)) and time.monotonic() < end:
        time.sleep(0.1)
    if not user:
        return lock
    if lock is not None:
        os.close(lock)
    raise SetupError(
        f"device {index} ({pci_bus_id}) is in use by {user}: times would be worth nothing",
        hint="wait until it is free, choose another device, or allow a shared one",
    )


def _user(lock: int | None, pci_bus_id: str, nvml: Nvml) -> str:
    """Who else uses the device; empty where nobody does, and the lock is then held."""
    try:
        if lock is not None:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "another sweep"
    # Whoever started this process waits for it meanwhile, and may well have a context of its own there.
    others = [pid for pid in nvml.readings(pci_bus_id).processes or () if pid != os.getppid()]
    return f"process {', '.join(map(str, others))}" if others else ""


def _open_lock(name: str) -> int | None:
    """The lock's file, whoever made it; None where the system lets nobody have it."""
    path = Path(tempfile.gettempdir()) / name
    # First as it is: a file of somebody else's cannot be opened for creation in a shared folder.
    for flags in (os.O_RDONLY, os.O_RDONLY | os.O_CREAT):
        with contextlib.suppress(OSError):
            return os.open(path, flags, 0o644)
    return None


def no_such_device(index: int, count: int) -> SetupError:
    """What is wrong where device `index` of `count` was asked for."""
    return SetupError(
        f"there is no CUDA device {index}: {count} found",
        hint=f"choose one of 0 to {count - 1}" if count else "check CUDA_VISIBLE_DEVICES and nvidia-smi",
    )


def identified(
    nvml: Nvml, *, index: int, name: str, pci_bus_id: str, memory_bytes: int, cuda_version: int
) -> DeviceIdentity:
    """The identity of CUDA device `index`; `cuda_version` is 1000 × major + 10 × minor."""
    return DeviceIdentity(
        name=name,
        uuid=device_uuid(index) or nvml.uuid(pci_bus_id) or "",
        pci_bus_id=pci_bus_id,
        driver=nvml.driver_version() or "",
        cuda_driver=f"{cuda_version // 1000}.{cuda_version % 1000 // 10}",
        memory_bytes=memory_bytes,
        index=index,
    )


def device_uuid(index: int) -> str | None:
    """The UUID of CUDA device `index`, which PyCUDA does not ask for; None if the driver does not say."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        ask = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
        if cuda.cuDeviceGet(ctypes.byref(device), index) or ask(raw, device):
            return None
    except (OSError, AttributeError):
        return None
    text = bytes(raw).hex()
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
