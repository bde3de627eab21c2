"""Several devices in one search: what they have in common, and which do not belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sweeper.device import DeviceIdentity, Target
from sweeper.errors import SetupError

__all__ = ["common_identity", "common_target"]


def common_target(targets: Sequence[Target], devices: Sequence[DeviceIdentity], *, mixed: bool) -> Target:
    """The limits of all `devices`, `mixed` products of one compute capability allowed or not.

    Raises SetupError for devices that do not belong in one search.
    """
    first, first_device = targets[0], devices[0]
    for limits, device in zip(targets, devices, strict=True):
        told = f"device {device.index} is {device.name}, device {first_device.index} {first_device.name}"
        if limits.cc != first.cc:
            raise SetupError(
                f"{told}: a build runs on compute capability {first.cc[0]}.{first.cc[1]} or"
                f" {limits.cc[0]}.{limits.cc[1]} alone",
                hint="search on one kind at a time: backend.devices=[…]",
            )
        if device.driver != first_device.driver and not mixed:
            raise SetupError(
                f"device {device.index} runs on driver {device.driver}, device {first_device.index} on"
                f" {first_device.driver}: their times do not compare",
                hint="search on one driver at a time, or set backend.mixed_devices=true",
            )
        kind, first_kind = (device.name, device.memory_bytes), (first_device.name, first_device.memory_bytes)
        if kind != first_kind and not mixed:
            raise SetupError(
                f"{told}: their times do not compare",
                hint="search on one kind at a time, backend.devices=[…], or set backend.mixed_devices=true",
            )
    return first


def common_identity(devices: Sequence[DeviceIdentity]) -> DeviceIdentity:
    """The one device, or what several have in common: names and driver, and no uuid."""
    if len(devices) == 1:
        return devices[0]
    names = dict.fromkeys(device.name for device in devices)
    return replace(
        devices[0],
        name=" + ".join(names),
        uuid="",
        pci_bus_id="",
        memory_bytes=min(device.memory_bytes for device in devices),
    )
