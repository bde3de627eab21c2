"""One CUDA device through PyCUDA: its primary context, its one stream, and what its errors mean."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from sweeper.backend.cuda.device_code import DeviceCode
from sweeper.backend.cuda.heat import Heat
from sweeper.backend.cuda.identity import claim, identified, no_such_device
from sweeper.backend.cuda.monitor import READINGS_EVERY_S, Monitor
from sweeper.backend.cuda.stopwatch import Stopwatch
from sweeper.device import DeviceIdentity, Target, from_query
from sweeper.device.nvml import Nvml
from sweeper.errors import SetupError, TrialFailed
from sweeper.model import Stage, Status

__all__ = ["CudaDevice"]

_CANARY_WORDS = 512
# Of a GPU that has not said how fast it runs.
_CLOCK_KHZ = 1.5e6


def _load_driver() -> Any:
    try:
        return importlib.import_module("pycuda.driver")
    except ImportError as error:
        missing = "libcuda" in str(error)
        raise SetupError(
            f"PyCUDA cannot be used: {error}",
            hint="there is no NVIDIA driver here"
            if missing
            else "install it with: python tools/install_pycuda.py",
        ) from error


class CudaDevice:
    """Device number `index` (in PCI order where `CUDA_DEVICE_ORDER` says so) and everything it owns.

    All work goes to `stream`; `code` holds our own kernels, `heat` how warm the device is, `monitor` what
    NVML says of it, at most `readings_every_s` seconds old. Raises SetupError where there is no such
    device, CUDA cannot be started on it, or another process uses it and not `allow_shared`. `claimed` says
    that the device is ours already, with the lock's file descriptor (None where no lock can be had).
    """

    def __init__(
        self,
        index: int,
        nvml: Nvml,
        *,
        allow_shared: bool = False,
        readings_every_s: float = READINGS_EVERY_S,
        claimed: tuple[int | None] | None = None,
    ) -> None:
        self.drv = _load_driver()
        self.index = index
        self._nvml = nvml
        self._device = self._find(index)
        self.pci_bus_id = str(self._device.pci_bus_id())
        if claimed is None:
            claimed = (None if allow_shared else claim(index, self.pci_bus_id, nvml),)
        self._lock = claimed[0]
        with self._starting():
            self._context = self._device.retain_primary_context()
            self._context.push()
            self.stream = self.drv.Stream()
            self.code = DeviceCode(self.drv, self.stream)
            self.stopwatch = Stopwatch(self.drv, self.stream)
        self._clock_khz = _CLOCK_KHZ
        self.heat = Heat()
        self.monitor = Monitor(nvml, self.pci_bus_id, every_s=readings_every_s)
        self.monitor.require_sound(self.monitor.readings())

    def close(self) -> None:
        """Leave the context; the process can open the device again."""
        del self.code, self.stopwatch
        with contextlib.suppress(self.drv.Error):
            self.drv.Context.pop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextlib.contextmanager
    def _starting(self) -> Iterator[None]:
        try:
            yield
        except self.drv.Error as error:
            raise SetupError(
                f"CUDA cannot be started on device {self.index}: {error}",
                hint="check the driver and other users of the device with nvidia-smi",
            ) from error

    def _find(self, index: int) -> Any:
        with self._starting():
            self.drv.init()
            count = int(self.drv.Device.count())
        if not 0 <= index < count:
            raise no_such_device(index, count)
        return self.drv.Device(index)

    def target(self) -> Target:
        """The device's limits, as the driver reports them."""
        clock = self.monitor.readings().max_sm_clock_mhz
        limits = from_query(
            self._attributes(),
            name=str(self._device.name()),
            memory_bytes=int(self._device.total_memory()),
            max_clock_mhz=int(clock) if clock else None,
        )
        self._clock_khz = limits.clock_mhz * 1e3
        return limits

    def _attributes(self) -> dict[str, int]:
        known = self.drv.device_attribute
        attributes: dict[str, int] = {}
        for name in dir(known):
            if name[0].isupper():
                # One that this driver or device does not have is an error, not a zero.
                with contextlib.suppress(self.drv.Error):
                    attributes[name] = int(self._device.get_attribute(getattr(known, name)))
        return attributes

    def identity(self) -> DeviceIdentity:
        """Which device it is, as the driver and NVML name it."""
        return identified(
            self._nvml,
            index=self.index,
            name=str(self._device.name()),
            pci_bus_id=self.pci_bus_id,
            memory_bytes=int(self._device.total_memory()),
            cuda_version=int(self.drv.get_driver_version()),
        )

    def synchronize(self) -> None:
        self.stream.synchronize()

    def pause(self, milliseconds: float) -> int:
        """Queue work of about this length that touches no memory; for how many cycles of its clock it goes on."""
        cycles = int(milliseconds * self._clock_khz)
        self.code.spin(cycles)
        return cycles

    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = self.drv.mem_get_info()
        return int(free), int(total)

    def allocate(self, nbytes: int) -> Any:
        """Device memory, freed with its last reference. Raises TrialFailed (out of memory).

        Tried a second time after garbage was collected: buffers of a failed configuration may still
        hang on its traceback.
        """
        for _ in range(2):
            try:
                return self.drv.mem_alloc(nbytes)
            except self.drv.MemoryError:
                gc.collect()
        raise self.out_of_memory(nbytes, Stage.LOAD)

    def require_memory(self, nbytes: int) -> None:
        """Raise TrialFailed (out of memory) if `nbytes` are certain not to fit."""
        if nbytes > self.memory()[0]:
            gc.collect()
            if nbytes > self.memory()[0]:
                raise self.out_of_memory(nbytes, Stage.LOAD)

    def out_of_memory(self, wanted: int | None, stage: Stage) -> TrialFailed:
        free, total = self.memory()
        details = {"free_bytes": free, "total_bytes": total, "wanted_bytes": wanted}
        what = (
            "the launch needs more device memory" if wanted is None else f"{wanted} B of device memory wanted"
        )
        return TrialFailed(
            Status.OUT_OF_MEMORY, stage, f"{what}, {free} B of {total} B free", details=details
        )

    @contextlib.contextmanager
    def doing(self, stage: Stage) -> Iterator[None]:
        """Translate PyCUDA's errors into the failure of one configuration."""
        try:
            yield
        except self.drv.Error as error:
            raise self.failure(error, stage) from None

    def failure(self, error: Exception, stage: Stage) -> TrialFailed:
        """What `error` means: out of memory, a launch refused, or a context that is lost (`sticky`).

        Which of the two last is asked of the context itself: after an illegal address, a trap or an assert
        each later call fails as well, whatever its message. Raises SetupError for faults of the memory.
        """
        if "ECC" in str(error):
            raise SetupError(
                f"device {self.pci_bus_id} is not sound: {_cause(error)}", hint="see nvidia-smi -q"
            )
        if not self.usable():
            reason = f"{_cause(error)}; the context is lost"
            details = {"sticky": True, "error": str(error), "type": type(error).__name__}
            return TrialFailed(Status.CRASH, stage, reason, details=details)
        if isinstance(error, self.drv.MemoryError):
            return self.out_of_memory(None, stage)
        details = {"error": str(error), "type": type(error).__name__}
        return TrialFailed(Status.LAUNCH_ERROR, stage, _cause(error), details=details)

    def usable(self) -> bool:
        try:
            self.drv.Context.synchronize()
            self.drv.mem_get_info()
        except self.drv.Error:
            return False
        return True

    def canary(self) -> None:
        """Run a kernel whose result is known. Raises SetupError if the device does not compute it."""
        drv, seed = self.drv, 0x5EED
        got = np.zeros(_CANARY_WORDS, np.uint32)
        try:
            out = drv.mem_alloc(got.nbytes)
            self.code.canary(int(out), seed, blocks=2)
            self.stream.synchronize()
            drv.memcpy_dtoh(got, int(out))
        except drv.Error as error:
            raise SetupError(f"the device fails at the simplest kernel: {error}", hint="see dmesg") from error
        if not np.array_equal(got, np.arange(got.size, dtype=np.uint32) + seed):
            raise SetupError(
                "the device computes the simplest kernel wrongly", hint="see dmesg and nvidia-smi -q"
            )


def _cause(error: Exception) -> str:
    """PyCUDA says `cuStreamSynchronize failed: an illegal memory access was encountered`."""
    call, found, cause = str(error).partition(" failed: ")
    return f"{cause} ({call})" if found else str(error)
