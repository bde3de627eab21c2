"""What the CUDA driver says of a device, asked without PyCUDA."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sweeper.backend.cuda import driver_api
from sweeper.backend.cuda.driver_api import find_device, wake
from sweeper.errors import SetupError

NUMBERS = driver_api._ATTRIBUTES


def put(pointer: Any, value: int) -> None:
    pointer._obj.value = value


class Library:
    """`libcuda.so.1` with one device, as far as it is asked."""

    def __init__(self) -> None:
        self.status: dict[str, int] = {}
        self.unknown = {NUMBERS["MAX_BLOCKS_PER_MULTIPROCESSOR"]}
        self.missing: set[str] = set()
        self.retained = threading.Event()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu") or name in self.missing:
            raise AttributeError(name)
        return lambda *arguments: self.status.get(name, 0) or getattr(self, f"do_{name.lower()}")(*arguments)

    def do_cuinit(self, flags: int) -> int:
        return 0

    def do_cugeterrorname(self, status: int, text: Any) -> int:
        text._obj.value = b"CUDA_ERROR_NO_DEVICE" if status == 100 else None
        return 0

    def do_cudevicegetcount(self, count: Any) -> int:
        put(count, 1)
        return 0

    def do_cudeviceget(self, device: Any, index: int) -> int:
        put(device, index)
        return 0

    def do_cudevicegetname(self, text: Any, size: int, device: Any) -> int:
        text.value = b"NVIDIA H200"
        return 0

    def do_cudevicegetpcibusid(self, text: Any, size: int, device: Any) -> int:
        text.value = b"0000:18:00.0"
        return 0

    def do_cudevicetotalmem_v2(self, memory: Any, device: Any) -> int:
        put(memory, 150_000_000_000)
        return 0

    def do_cudrivergetversion(self, version: Any) -> int:
        put(version, 13010)
        return 0

    def do_cudevicegetuuid_v2(self, raw: Any, device: Any) -> int:
        raw[:] = list(range(16))
        return 0

    def do_cudevicegetattribute(self, value: Any, number: int, device: Any) -> int:
        put(value, 1000 + number)
        return 1 if number in self.unknown else 0

    def do_cudeviceprimaryctxretain(self, context: Any, device: Any) -> int:
        self.retained.set()
        return 0


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(driver_api.ctypes, "CDLL", lambda name: made)
    return made


def test_a_device_is_described_by_the_driver(library: Library) -> None:
    found = find_device(0)
    assert (found.name, found.pci_bus_id) == ("NVIDIA H200", "0000:18:00.0")
    assert found.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert (found.memory_bytes, found.cuda_version) == (150_000_000_000, 13010)


def test_an_older_driver_tells_the_uuid_by_its_older_name_or_not_at_all(library: Library) -> None:
    library.missing = {"cuDeviceGetUuid_v2"}
    library.do_cudevicegetuuid = library.do_cudevicegetuuid_v2
    assert find_device(0).uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    library.missing.add("cuDeviceGetUuid")
    assert find_device(0).uuid == ""


def test_attributes_that_the_driver_does_not_know_are_missing_and_not_zero(library: Library) -> None:
    attributes = find_device(0).attributes
    assert attributes["MULTIPROCESSOR_COUNT"] == 1016
    assert "MAX_BLOCKS_PER_MULTIPROCESSOR" not in attributes


def test_a_device_that_is_not_there_is_named_with_those_that_are(library: Library) -> None:
    with pytest.raises(SetupError, match="no CUDA device 3: 1 found") as caught:
        find_device(3)
    assert "0 to 0" in str(caught.value.hint)


def test_a_driver_that_does_not_start_says_why(library: Library) -> None:
    library.status["cuInit"] = 100
    with pytest.raises(SetupError, match="cuInit: CUDA_ERROR_NO_DEVICE"):
        find_device(0)


def test_an_error_without_a_name_keeps_its_number(library: Library) -> None:
    library.status["cuDeviceGetName"] = 999
    with pytest.raises(SetupError, match="cuDeviceGetName: error 999"):
        find_device(0)


def test_without_a_driver_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(driver_api.ctypes, "CDLL", missing)
    with pytest.raises(SetupError, match="no NVIDIA driver here"):
        find_device(0)


def test_waking_retains_the_primary_context_in_a_thread(library: Library) -> None:
    wake(0).join(10)
    assert library.retained.is_set()


def test_waking_leaves_a_failure_to_whoever_opens_the_device(library: Library) -> None:
    library.status["cuDevicePrimaryCtxRetain"] = 2
    wake(0).join(10)
    assert not library.retained.is_set()
