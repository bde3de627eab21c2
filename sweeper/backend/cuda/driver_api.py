"""A device's limits and identity from the driver itself, before anything large is loaded.

Loading PyCUDA and making a context takes about a second; asking the driver takes a fifth of that. So a
search knows what it is for, and compiles, while the context is still being made. What is asked here and
what PyCUDA says later are the same device's words; `wake` retains the context that PyCUDA then finds.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sweeper.backend.cuda.identity import device_uuid, no_such_device
from sweeper.errors import SetupError

__all__ = ["DriverDevice", "find_device", "wake"]

# The numbers of CUdevice_attribute in NVIDIA's cuda.h, which never change.
_ATTRIBUTES = {
    "MAX_THREADS_PER_BLOCK": 1,
    "MAX_BLOCK_DIM_X": 2,
    "MAX_BLOCK_DIM_Y": 3,
    "MAX_BLOCK_DIM_Z": 4,
    "MAX_GRID_DIM_X": 5,
    "MAX_GRID_DIM_Y": 6,
    "MAX_GRID_DIM_Z": 7,
    "MAX_SHARED_MEMORY_PER_BLOCK": 8,
    "WARP_SIZE": 10,
    "CLOCK_RATE": 13,
    "MULTIPROCESSOR_COUNT": 16,
    "MEMORY_CLOCK_RATE": 36,
    "GLOBAL_MEMORY_BUS_WIDTH": 37,
    "L2_CACHE_SIZE": 38,
    "MAX_THREADS_PER_MULTIPROCESSOR": 39,
    "COMPUTE_CAPABILITY_MAJOR": 75,
    "COMPUTE_CAPABILITY_MINOR": 76,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 81,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 82,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 97,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 106,
}
_NAME_BYTES = 256
_LIBRARY = "libcuda.so.1"


@dataclass(frozen=True, slots=True)
class DriverDevice:
    """What the driver says of one device; `uuid` is empty where it does not tell.

    `cuda_version` is 1000 × major + 10 × minor.
    """

    index: int
    name: str
    pci_bus_id: str
    uuid: str
    memory_bytes: int
    cuda_version: int
    attributes: dict[str, int]


def find_device(index: int) -> DriverDevice:
    """Device number `index` in CUDA's order. Raises SetupError where the driver has none, or is not there."""
    driver = _Driver()
    count = ctypes.c_int()
    driver.call("cuDeviceGetCount", ctypes.byref(count))
    if not 0 <= index < count.value:
        raise no_such_device(index, count.value)
    device = ctypes.c_int()
    driver.call("cuDeviceGet", ctypes.byref(device), index)
    name = ctypes.create_string_buffer(_NAME_BYTES)
    driver.call("cuDeviceGetName", name, _NAME_BYTES, device)
    bus = ctypes.create_string_buffer(_NAME_BYTES)
    driver.call("cuDeviceGetPCIBusId", bus, _NAME_BYTES, device)
    memory, version = ctypes.c_size_t(), ctypes.c_int()
    driver.call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    driver.call("cuDriverGetVersion", ctypes.byref(version))
    return DriverDevice(
        index=index,
        name=name.value.decode(errors="replace"),
        pci_bus_id=bus.value.decode(),
        uuid=device_uuid(index) or "",
        memory_bytes=memory.value,
        cuda_version=version.value,
        attributes=driver.attributes(device),
    )


def wake(index: int) -> threading.Thread:
    """Begin to retain the primary context of device `index`, which whoever retains it next need not wait for.

    A failure is left to that one, who meets it again.
    """

    def retain() -> None:
        try:
            driver = _Driver()
            device, context = ctypes.c_int(), ctypes.c_void_p()
            driver.call("cuDeviceGet", ctypes.byref(device), index)
            driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        except SetupError:
            pass

    thread = threading.Thread(target=retain, name="waking the device", daemon=True)
    thread.start()
    return thread


class _Driver:
    """libcuda, initialised. Raises SetupError where it is not there or does not start."""

    def __init__(self) -> None:
        try:
            self._library: Any = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise SetupError(
                f"there is no NVIDIA driver here: {error}", hint="install one, or use backend=emulator"
            ) from None
        self.call("cuInit", 0)

    def call(self, function: str, *arguments: Any) -> None:
        """Raises SetupError with the driver's own name of the error."""
        status = self._function(function)(*arguments)
        if status:
            raise SetupError(
                f"the CUDA driver fails in {function}: {self._error(status)}",
                hint="check the driver and the device with nvidia-smi",
            )

    def attributes(self, device: ctypes.c_int) -> dict[str, int]:
        """Those of `_ATTRIBUTES` that the driver knows."""
        found = {}
        ask, value = self._function("cuDeviceGetAttribute"), ctypes.c_int()
        for name, number in _ATTRIBUTES.items():
            if not ask(ctypes.byref(value), number, device):
                found[name] = value.value
        return found

    def _function(self, name: str) -> Callable[..., int]:
        try:
            function: Callable[..., int] = getattr(self._library, name)
        except AttributeError:
            raise SetupError(f"the CUDA driver has no {name}", hint="install a newer driver") from None
        return function

    def _error(self, status: int) -> str:
        text = ctypes.c_char_p()
        self._library.cuGetErrorName(status, ctypes.byref(text))
        return text.value.decode() if text.value else f"error {status}"
