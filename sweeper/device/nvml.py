"""What NVML says of one device: clocks, power, temperature, slow-downs, faults, processes.

Reads only: no clock, limit or mode is ever set. Devices are found by PCI bus id, because NVML's order
is not CUDA's and knows nothing of `CUDA_VISIBLE_DEVICES`. Where the library, the driver or the right
to ask is missing, readings are None and `note` says why; nothing raises.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

__all__ = ["Nvml", "NvmlReadings", "device_fault", "slow_down_reasons"]

T = TypeVar("T")

# Bits of nvmlDeviceGetCurrentClocksEventReasons, as nvml.h names them.
_REASONS: Final[dict[int, str]] = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
_SLOW_DOWNS: Final = frozenset(
    {"sw_power_cap", "hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
)

# Xids that a faulty kernel causes on a healthy device (NVIDIA, "XID Errors"): graphics exception, page
# fault, channel stopped, clean-up after one of them. The worker's own fault handling covers these.
_KERNEL_XIDS: Final = frozenset({13, 31, 43, 45})

_XID_EVENT: Final = 0x8  # nvmlEventTypeXidCriticalError
_CLOCK_SM, _CLOCK_MEMORY = 1, 2
_UNCORRECTED, _VOLATILE = 1, 0
_TEMPERATURE_GPU = 0


@dataclass(frozen=True, slots=True)
class NvmlReadings:
    """One device at one moment; None is `not known`.

    `processes` are the ids of processes with a compute context, as the driver counts them: inside a
    container they need not be the ids seen there, so compare two readings rather than with one's own
    id. `ecc_errors` counts uncorrected ones since the driver was loaded; `xids` the critical errors
    since the first reading of this device. `lost` says that the device has fallen off the bus.
    """

    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    max_sm_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    ecc_errors: int | None = None
    processes: tuple[int, ...] | None = None
    xids: tuple[int, ...] = ()
    lost: bool = False
    note: str = ""


def slow_down_reasons(readings: NvmlReadings) -> tuple[str, ...]:
    """The reasons why the clock is held below what was asked for; idling and a set clock are none."""
    return tuple(r for r in readings.throttle_reasons or () if r in _SLOW_DOWNS)


def device_fault(before: NvmlReadings, after: NvmlReadings) -> str | None:
    """Why nothing measured between two readings can be trusted, nor the device any longer; else None."""
    if after.lost:
        return "the GPU is lost (fallen off the bus)"
    fresh = [x for x in after.xids[len(before.xids) :] if x not in _KERNEL_XIDS]
    if fresh:
        return f"the driver reports Xid {', '.join(map(str, fresh))}"
    if before.ecc_errors is not None and after.ecc_errors is not None:
        grown = after.ecc_errors - before.ecc_errors
        if grown > 0:
            return f"{grown} uncorrected ECC error{'s' if grown > 1 else ''}"
    return None


class Nvml:
    """NVML through `pynvml` (package nvidia-ml-py), loaded at the first reading.

    `library` takes the module's place in tests. Usable as a context manager; not safe for threads.
    """

    def __init__(self, library: Any | None = None) -> None:
        self._library: Any = library
        self._handles: dict[str, Any] = {}
        self._events: dict[str, Any] = {}
        self._xids: dict[str, tuple[int, ...]] = {}
        self._absent: str | None = None

    def readings(self, pci_bus_id: str) -> NvmlReadings:
        """Everything that can be read of the device at `pci_bus_id` (`0000:18:00.0`) now."""
        reader = self._reader(pci_bus_id)
        if isinstance(reader, NvmlReadings):
            return reader
        nv, handle = self._library, reader.handle
        read = reader.read
        milliwatt = read("power", lambda: nv.nvmlDeviceGetPowerUsage(handle))
        pids = read("processes", lambda: [p.pid for p in nv.nvmlDeviceGetComputeRunningProcesses(handle)])
        mask = read("slow-down reasons", lambda: _reason_mask(nv, handle))
        return NvmlReadings(
            sm_clock_mhz=read("SM clock", lambda: nv.nvmlDeviceGetClockInfo(handle, _CLOCK_SM)),
            memory_clock_mhz=read("memory clock", lambda: nv.nvmlDeviceGetClockInfo(handle, _CLOCK_MEMORY)),
            max_sm_clock_mhz=read(
                "highest SM clock", lambda: nv.nvmlDeviceGetMaxClockInfo(handle, _CLOCK_SM)
            ),
            power_w=None if milliwatt is None else milliwatt / 1000,
            temperature_c=read("temperature", lambda: nv.nvmlDeviceGetTemperature(handle, _TEMPERATURE_GPU)),
            throttle_reasons=None if mask is None else _reason_names(mask),
            ecc_errors=read("ECC", lambda: nv.nvmlDeviceGetTotalEccErrors(handle, _UNCORRECTED, _VOLATILE)),
            processes=None if pids is None else tuple(sorted(pids)),
            xids=self._poll_xids(pci_bus_id, reader),
            lost=reader.lost,
            note="; ".join(reader.notes),
        )

    def glance(self, pci_bus_id: str) -> NvmlReadings:
        """Clocks, power, temperature and slow-downs alone: microseconds, where `readings` take milliseconds."""
        reader = self._reader(pci_bus_id)
        if isinstance(reader, NvmlReadings):
            return reader
        nv, handle, read = self._library, reader.handle, reader.read
        milliwatt = read("power", lambda: nv.nvmlDeviceGetPowerUsage(handle))
        mask = read("slow-down reasons", lambda: _reason_mask(nv, handle))
        return NvmlReadings(
            sm_clock_mhz=read("SM clock", lambda: nv.nvmlDeviceGetClockInfo(handle, _CLOCK_SM)),
            memory_clock_mhz=read("memory clock", lambda: nv.nvmlDeviceGetClockInfo(handle, _CLOCK_MEMORY)),
            power_w=None if milliwatt is None else milliwatt / 1000,
            temperature_c=read("temperature", lambda: nv.nvmlDeviceGetTemperature(handle, _TEMPERATURE_GPU)),
            throttle_reasons=None if mask is None else _reason_names(mask),
            lost=reader.lost,
            note="; ".join(reader.notes),
        )

    def energy_mj(self, pci_bus_id: str) -> float | None:
        """Millijoules since the driver was loaded. Takes 2 to 15 ms on an H200 with driver 580."""
        reader = self._reader(pci_bus_id)
        if isinstance(reader, NvmlReadings):
            return None
        energy = self._library
        return reader.read("energy", lambda: float(energy.nvmlDeviceGetTotalEnergyConsumption(reader.handle)))

    def uuid(self, pci_bus_id: str) -> str | None:
        """The device's UUID (`GPU-…`), or None."""
        reader = self._reader(pci_bus_id)
        if isinstance(reader, NvmlReadings):
            return None
        return reader.read("UUID", lambda: _text(self._library.nvmlDeviceGetUUID(reader.handle)))

    def driver_version(self) -> str | None:
        """The display driver's version (`580.65.06`), or None."""
        if self._start():
            return None
        try:
            return _text(self._library.nvmlSystemGetDriverVersion())
        except self._errors():
            return None

    def close(self) -> None:
        """Let NVML go; the next reading starts it again."""
        if self._library is not None and self._absent == "":
            try:
                self._library.nvmlShutdown()
            except self._errors():
                pass
        self._handles.clear()
        self._events.clear()
        self._absent = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> str:
        """Why NVML is absent; empty when it runs. Tried once, until `close`."""
        if self._absent is None:
            self._absent = self._try_to_start()
        return self._absent

    def _try_to_start(self) -> str:
        if self._library is None:
            try:
                self._library = importlib.import_module("pynvml")
            except ImportError:
                return "no NVML: the package nvidia-ml-py is not installed"
        try:
            self._library.nvmlInit()
        except self._errors() as error:
            return f"no NVML: {error}"
        return ""

    def _errors(self) -> tuple[type[Exception], ...]:
        """What a call may raise: NVML's own error, or a function that this version does not have."""
        return (self._library.NVMLError, AttributeError, OSError)

    def _reader(self, pci_bus_id: str) -> _Reader | NvmlReadings:
        absent = self._start()
        if absent:
            return NvmlReadings(note=absent)
        reader = _Reader(self._library, self._errors())
        if pci_bus_id not in self._handles:
            handle = reader.read("device", lambda: self._library.nvmlDeviceGetHandleByPciBusId(pci_bus_id))
            if handle is None:
                note = "; ".join(reader.notes) or f"no NVML device at {pci_bus_id}"
                return NvmlReadings(lost=reader.lost, note=note)
            self._handles[pci_bus_id] = handle
        reader.handle = self._handles[pci_bus_id]
        return reader

    def _poll_xids(self, pci_bus_id: str, reader: _Reader) -> tuple[int, ...]:
        nv = self._library
        if pci_bus_id not in self._events:
            self._events[pci_bus_id] = reader.read("Xid events", lambda: _watch_xids(nv, reader.handle))
        events = self._events[pci_bus_id]
        seen = self._xids.get(pci_bus_id, ())
        if events is not None:
            seen += tuple(_drain(nv, events, self._errors()))
            self._xids[pci_bus_id] = seen
        return seen


class _Reader:
    """Calls that may fail one by one: each gives its value or None, and at most one note."""

    def __init__(self, library: Any, errors: tuple[type[Exception], ...]) -> None:
        self._library = library
        self._errors = errors
        self.handle: Any = None
        self.notes: list[str] = []
        self.lost = False

    def read(self, what: str, call: Callable[[], T]) -> T | None:
        if self.lost:
            return None
        try:
            return call()
        except self._errors as error:
            self.lost = self._is(error, "NVMLError_GpuIsLost")
            if not self._is(error, "NVMLError_NotSupported") and not isinstance(error, AttributeError):
                self.notes.append(f"NVML {what}: {error}")
            return None

    def _is(self, error: Exception, name: str) -> bool:
        kind = getattr(self._library, name, None)
        return kind is not None and isinstance(error, kind)


def _text(value: str | bytes) -> str:
    """Bindings before version 12 give bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _reason_mask(nv: Any, handle: Any) -> int:
    """The function was renamed in driver 535; older bindings know only the old name."""
    ask = getattr(nv, "nvmlDeviceGetCurrentClocksEventReasons", None)
    return int((ask or nv.nvmlDeviceGetCurrentClocksThrottleReasons)(handle))


def _reason_names(mask: int) -> tuple[str, ...]:
    return tuple(name for bit, name in _REASONS.items() if mask & bit)


def _watch_xids(nv: Any, handle: Any) -> Any:
    events = nv.nvmlEventSetCreate()
    nv.nvmlDeviceRegisterEvents(handle, _XID_EVENT, events)
    return events


def _drain(nv: Any, events: Any, errors: tuple[type[Exception], ...]) -> list[int]:
    """Xids that arrived since the last call; waiting for none, NVML ends each poll with a time-out error."""
    xids: list[int] = []
    while len(xids) < 64:
        try:
            xids.append(int(nv.nvmlEventSetWait_v2(events, 0).eventData))
        except errors:
            break
    return xids
