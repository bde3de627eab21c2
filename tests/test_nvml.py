"""NVML readings: by PCI bus id, never raising, never setting anything."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sweeper.device.nvml import Nvml, NvmlReadings, device_fault, slow_down_reasons

BUS = "0000:18:00.0"


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):  # noqa: N801 - the library's own name
    pass


class NVMLError_GpuIsLost(NVMLError):  # noqa: N801 - the library's own name
    pass


class FakeLibrary:
    """`pynvml` with two devices; `answers[function]` is a value, or an exception to raise."""

    NVMLError = NVMLError
    NVMLError_NotSupported = NVMLError_NotSupported
    NVMLError_GpuIsLost = NVMLError_GpuIsLost

    def __init__(self, **answers: Any) -> None:
        self.called: list[str] = []
        self.xids: list[int] = []
        self.answers: dict[str, Any] = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlSystemGetDriverVersion": "580.65.06",
            "nvmlDeviceGetHandleByPciBusId": lambda bus: {BUS: "first", "0000:2A:00.0": "second"}[bus],
            "nvmlDeviceGetClockInfo": lambda _, kind: {1: 1980, 2: 3201}[kind],
            "nvmlDeviceGetMaxClockInfo": lambda _, kind: {1: 1980}[kind],
            "nvmlDeviceGetPowerUsage": lambda handle: {"first": 370_500, "second": 80_000}[handle],
            "nvmlDeviceGetTemperature": 61,
            "nvmlDeviceGetCurrentClocksEventReasons": 0x4 | 0x1,
            "nvmlDeviceGetTotalEccErrors": lambda _, kind, counter: 0 if (kind, counter) == (1, 0) else 99,
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=42), SimpleNamespace(pid=7)],
            "nvmlDeviceGetTotalEnergyConsumption": 123_456,
            "nvmlDeviceGetUUID": "GPU-1",
            "nvmlEventSetCreate": "events",
            "nvmlDeviceRegisterEvents": None,
            "nvmlEventSetWait_v2": self._next_xid,
        } | answers

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("nvml") or self.answers.get(name, ...) is ...:
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            self.called.append(name)
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer(*arguments) if callable(answer) else answer

        return call

    def _next_xid(self, _events: object, _milliseconds: int) -> SimpleNamespace:
        if not self.xids:
            raise NVMLError("Timeout")
        return SimpleNamespace(eventData=self.xids.pop(0))


def test_readings_carry_their_units() -> None:
    assert Nvml(FakeLibrary()).readings(BUS) == NvmlReadings(
        sm_clock_mhz=1980,
        memory_clock_mhz=3201,
        max_sm_clock_mhz=1980,
        power_w=370.5,
        temperature_c=61,
        throttle_reasons=("gpu_idle", "sw_power_cap"),
        ecc_errors=0,
        processes=(7, 42),
    )


def test_devices_are_told_apart_by_pci_bus_id() -> None:
    nvml = Nvml(FakeLibrary())
    assert nvml.readings(BUS).power_w == 370.5
    assert nvml.readings("0000:2A:00.0").power_w == 80


def test_nothing_is_ever_set() -> None:
    library = FakeLibrary()
    with Nvml(library) as nvml:
        nvml.readings(BUS)
        nvml.uuid(BUS)
        nvml.driver_version()
    assert not [name for name in library.called if "DeviceSet" in name or "Reset" in name]


def test_what_a_device_does_not_support_is_none_and_no_reason_to_complain() -> None:
    library = FakeLibrary(
        nvmlDeviceGetTotalEccErrors=NVMLError_NotSupported("Not Supported"),
        nvmlDeviceGetPowerUsage=NVMLError_NotSupported("Not Supported"),
    )
    readings = Nvml(library).readings(BUS)
    assert readings.ecc_errors is None
    assert readings.power_w is None
    assert readings.sm_clock_mhz == 1980
    assert readings.note == ""


def test_a_missing_right_is_noted_and_the_rest_is_read() -> None:
    refused = NVMLError("Insufficient Permissions")
    readings = Nvml(FakeLibrary(nvmlDeviceGetComputeRunningProcesses=refused)).readings(BUS)
    assert readings.processes is None
    assert readings.temperature_c == 61
    assert readings.note == "NVML processes: Insufficient Permissions"


def test_old_bindings_without_a_function_are_read_without_it() -> None:
    old = FakeLibrary(
        nvmlDeviceGetCurrentClocksEventReasons=...,
        nvmlDeviceGetCurrentClocksThrottleReasons=0x20,
        nvmlEventSetWait_v2=...,
        nvmlDeviceGetUUID=b"GPU-old",
    )
    nvml = Nvml(old)
    readings = nvml.readings(BUS)
    assert readings.throttle_reasons == ("sw_thermal_slowdown",)
    assert readings.xids == ()
    assert readings.note == ""
    assert nvml.uuid(BUS) == "GPU-old"


def test_without_the_library_nothing_is_claimed_and_nothing_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with Nvml() as nvml:
        readings = nvml.readings(BUS)
        assert readings == NvmlReadings(note=readings.note)
        assert "nvidia-ml-py is not installed" in readings.note
        assert nvml.uuid(BUS) is None
        assert nvml.driver_version() is None


def test_without_a_driver_the_note_is_the_library_s() -> None:
    library = FakeLibrary(nvmlInit=NVMLError("Driver Not Loaded"))
    nvml = Nvml(library)
    assert nvml.readings(BUS).note == "no NVML: Driver Not Loaded"
    nvml.readings(BUS)
    assert library.called.count("nvmlInit") == 1  # not asked again for each reading


def test_the_library_is_imported_only_when_something_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeLibrary()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    nvml = Nvml()
    assert library.called == []
    assert nvml.readings(BUS).sm_clock_mhz == 1980


def test_an_unknown_bus_id_gives_a_note() -> None:
    library = FakeLibrary(nvmlDeviceGetHandleByPciBusId=NVMLError("Not Found"))
    assert Nvml(library).readings("0000:99:00.0").note == "NVML device: Not Found"
    library = FakeLibrary(nvmlDeviceGetHandleByPciBusId=NVMLError_NotSupported())
    nvml = Nvml(library)
    assert nvml.readings("0000:99:00.0").note == "no NVML device at 0000:99:00.0"
    assert nvml.uuid("0000:99:00.0") is None


def test_driver_version_and_uuid() -> None:
    nvml = Nvml(FakeLibrary())
    assert nvml.driver_version() == "580.65.06"
    assert nvml.uuid(BUS) == "GPU-1"
    assert Nvml(FakeLibrary(nvmlSystemGetDriverVersion=NVMLError("no"))).driver_version() is None


def test_closing_twice_or_badly_is_harmless_and_reading_starts_it_again() -> None:
    library = FakeLibrary(nvmlShutdown=NVMLError("Uninitialized"))
    nvml = Nvml(library)
    nvml.close()
    nvml.readings(BUS)
    nvml.close()
    nvml.close()
    assert library.called.count("nvmlShutdown") == 1
    assert nvml.readings(BUS).sm_clock_mhz == 1980


def test_a_lost_gpu_is_a_fault_and_asked_no_more() -> None:
    library = FakeLibrary()
    nvml = Nvml(library)
    before = nvml.readings(BUS)
    library.answers["nvmlDeviceGetClockInfo"] = NVMLError_GpuIsLost("GPU is lost")
    library.answers["nvmlDeviceGetPowerUsage"] = NVMLError_GpuIsLost("GPU is lost")
    after = nvml.readings(BUS)
    assert after.lost
    assert after.temperature_c is None
    assert device_fault(before, after) == "the GPU is lost (fallen off the bus)"


def test_new_uncorrected_ecc_errors_are_a_fault_and_old_ones_are_not() -> None:
    assert device_fault(NvmlReadings(ecc_errors=3), NvmlReadings(ecc_errors=3)) is None
    assert device_fault(NvmlReadings(ecc_errors=3), NvmlReadings(ecc_errors=4)) == "1 uncorrected ECC error"
    assert device_fault(NvmlReadings(ecc_errors=0), NvmlReadings(ecc_errors=2)) == "2 uncorrected ECC errors"
    assert device_fault(NvmlReadings(), NvmlReadings(ecc_errors=2)) is None


def test_xids_are_collected_and_those_of_a_sick_device_are_a_fault() -> None:
    library = FakeLibrary()
    nvml = Nvml(library)
    library.xids = [79]
    before = nvml.readings(BUS)
    assert before.xids == (79,)
    assert device_fault(before, nvml.readings(BUS)) is None  # nothing new
    library.xids = [63, 64]
    assert device_fault(before, nvml.readings(BUS)) == "the driver reports Xid 63, 64"


def test_the_xid_of_a_kernel_s_illegal_access_does_not_make_the_device_sick() -> None:
    assert device_fault(NvmlReadings(), NvmlReadings(xids=(31, 43, 13, 45))) is None


def test_a_flood_of_xids_does_not_hold_up_a_reading() -> None:
    library = FakeLibrary(nvmlEventSetWait_v2=SimpleNamespace(eventData=31))
    assert len(Nvml(library).readings(BUS).xids) == 64


def test_idling_is_no_slow_down_and_a_power_cap_is() -> None:
    readings = NvmlReadings(throttle_reasons=("gpu_idle", "sw_power_cap", "applications_clocks_setting"))
    assert slow_down_reasons(readings) == ("sw_power_cap",)
    assert slow_down_reasons(NvmlReadings()) == ()


# --- glances ----------------------------------------------------------------------------------------


def test_a_glance_is_of_what_costs_nothing_to_ask() -> None:
    library = FakeLibrary()
    assert Nvml(library).glance(BUS) == NvmlReadings(
        sm_clock_mhz=1980,
        memory_clock_mhz=3201,
        power_w=370.5,
        temperature_c=61,
        throttle_reasons=("gpu_idle", "sw_power_cap"),
    )
    assert not {"nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetComputeRunningProcesses"} & set(
        library.called
    )


def test_energy_is_asked_for_alone() -> None:
    library = FakeLibrary()
    assert Nvml(library).energy_mj(BUS) == 123_456
    library.called.clear()
    Nvml(library).readings(BUS)
    assert "nvmlDeviceGetTotalEnergyConsumption" not in library.called


def test_a_glance_without_nvml_claims_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Nvml().glance(BUS).sm_clock_mhz is None
    assert Nvml().energy_mj(BUS) is None
