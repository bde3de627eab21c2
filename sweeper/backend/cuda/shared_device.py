"""A CUDA device whose primary context this process shares with whoever else uses it: torch, CuPy, Numba.

The CUDA runtime, and with it these libraries, works in a device's primary context; `pycuda.autoinit` makes another
one, in which their memory is not theirs to use. So the primary one is retained here, and is current only while
something is done in it.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any, Protocol

from sweeper.backend.cuda.device import CudaDevice, _load_driver
from sweeper.device import Target, from_query
from sweeper.errors import SetupError

__all__ = ["PointerApi", "SharedDevice", "load_pointer_api"]

# Of cuda.h: CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_EVENT_DISABLE_TIMING.
_DEVICE_ORDINAL = 9
_NO_TIMING = 2


class PointerApi(Protocol):
    """What is asked of the driver about memory and streams that are somebody else's."""

    def device_of(self, pointer: int) -> int | None:
        """The number of the device that the memory at `pointer` belongs to; None where the driver does not know it."""
        ...

    def wait(self, stream: int, other: int) -> None:
        """Let what is queued to `stream` from now on wait for what is queued to `other` by now."""
        ...


class _Libcuda:
    """The driver's library; calls act on the current context."""

    def __init__(self) -> None:
        try:
            self._library: Any = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise SetupError(f"there is no NVIDIA driver here: {error}") from None

    def device_of(self, pointer: int) -> int | None:
        ordinal = ctypes.c_int(-1)
        place = ctypes.c_uint64(pointer)
        status = self._library.cuPointerGetAttribute(ctypes.byref(ordinal), _DEVICE_ORDINAL, place)
        return None if status else ordinal.value

    def wait(self, stream: int, other: int) -> None:
        event = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(event), _NO_TIMING)
        try:
            self._call("cuEventRecord", event, ctypes.c_void_p(other))
            self._call("cuStreamWaitEvent", ctypes.c_void_p(stream), event, 0)
        finally:
            # The driver keeps it until what was queued is done.
            self._library.cuEventDestroy_v2(event)

    def _call(self, name: str, *arguments: Any) -> None:
        status = int(getattr(self._library, name)(*arguments))
        if status:
            raise SetupError(f"the CUDA driver fails in {name} with error {status}")


def load_pointer_api() -> PointerApi:
    """Raises SetupError where there is no driver."""
    return _Libcuda()


class SharedDevice(CudaDevice):
    """Device number `index`, in the order of this process, through its primary context.

    It claims nothing, has no stream of its own and measures nothing. Raises SetupError where PyCUDA or the device
    is not there.
    """

    def __init__(self, index: int) -> None:
        self.drv = _load_driver()
        self.index = index
        self._device = self._find(index)
        self.pci_bus_id = str(self._device.pci_bus_id())
        with self._starting():
            self._context = self._device.retain_primary_context()

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """The primary context is the current one of this thread."""
        self._context.push()
        try:
            yield
        finally:
            self.drv.Context.pop()

    @property
    def name(self) -> str:
        return str(self._device.name())

    def target(self) -> Target:
        """The device's limits, as the driver reports them."""
        return from_query(
            self._attributes(),
            name=self.name,
            memory_bytes=int(self._device.total_memory()),
            max_clock_mhz=None,
        )

    def close(self) -> None:
        """Nothing to do: the context is retained by whoever else uses it, and released with the last reference."""
