"""NVML's readings of one device over a sweep: how it fares, who else is on it, whether it is sound."""

from __future__ import annotations

import os
import time

from sweeper.device.nvml import Nvml, NvmlReadings, device_fault
from sweeper.errors import SetupError

__all__ = ["READINGS_EVERY_S", "Monitor"]

READINGS_EVERY_S = 0.2
"""How old readings may be, unless somebody says otherwise."""


class Monitor:
    """Readings of the device at `pci_bus_id`, taken anew once the last ones are `every_s` seconds old.

    A reading costs milliseconds, which a configuration of a small problem does not even take; so what
    is said of one may have been seen up to `every_s` earlier.
    """

    def __init__(self, nvml: Nvml, pci_bus_id: str, *, every_s: float) -> None:
        self._nvml = nvml
        self._pci_bus_id = pci_bus_id
        self._every_s = every_s
        self._last = NvmlReadings()
        self._taken_s = -float("inf")
        self._judged: NvmlReadings | None = None
        self._known: set[int] | None = None

    @property
    def due(self) -> bool:
        """Whether the next readings will be new ones."""
        return time.monotonic() - self._taken_s >= self._every_s

    @property
    def latest(self) -> NvmlReadings:
        """The last readings, however old."""
        return self._last

    def readings(self, *, fresh: bool = False) -> NvmlReadings:
        """The last readings; new ones where they are `due`, or `fresh` ones are asked for."""
        if fresh or self.due:
            self._last = self._nvml.readings(self._pci_bus_id)
            self._taken_s = time.monotonic()
        return self._last

    def glance(self) -> NvmlReadings:
        """Clocks, power, temperature and slow-downs at this moment, at next to no cost."""
        return self._nvml.glance(self._pci_bus_id)

    def energy_mj(self) -> float | None:
        """The device's energy counter in millijoules; None where it has none."""
        return self._nvml.energy_mj(self._pci_bus_id)

    def know_users(self) -> None:
        """Take whoever is on the device at the first call for known: this process, and those allowed."""
        if self._known is None:
            self._known = {os.getpid(), *(self.readings(fresh=True).processes or ())}

    def strangers(self, readings: NvmlReadings) -> list[int]:
        """Processes that have come to the device since then, as the driver numbers them."""
        return sorted(set(readings.processes or ()) - (self._known or set()))

    def require_sound(self, now: NvmlReadings) -> None:
        """Raise SetupError if the device reports a fault that it had not at the last call."""
        before, self._judged = self._judged or now, now
        fault = device_fault(before, now)
        if fault:
            raise SetupError(
                f"device {self._pci_bus_id} is not sound: {fault}",
                hint="look at dmesg and nvidia-smi -q; what was measured before is kept",
            )
