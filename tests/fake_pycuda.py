"""A pretended `pycuda.driver`: device memory in NumPy, kernels in Python, and a clock of its own.

    driver = FakeDriver()
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)

A cubin of `cubins.cubin` names its kernels; what each does is its `Behaviour`, which the driver looks
up. Host and device have clocks (in ms) that run on as calls are made, so a launch queued too late
shows in the time between two events as it would on a GPU.
"""

from __future__ import annotations

import struct
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import fake_device_code
import numpy as np

ATTRIBUTES = {
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "MULTIPROCESSOR_COUNT": 132,
    "CLOCK_RATE": 1_980_000,
    "WARP_SIZE": 32,
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_BLOCK_DIM_X": 1024,
    "MAX_BLOCK_DIM_Y": 1024,
    "MAX_BLOCK_DIM_Z": 64,
    "MAX_GRID_DIM_X": 2**31 - 1,
    "MAX_GRID_DIM_Y": 65535,
    "MAX_GRID_DIM_Z": 65535,
    "MAX_SHARED_MEMORY_PER_BLOCK": 49152,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233472,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
    "L2_CACHE_SIZE": 1 << 20,
    "GLOBAL_MEMORY_BUS_WIDTH": 6144,
    "MEMORY_CLOCK_RATE": 3_201_000,
}
_BASE = 0x7F00_0000_0000
_MEMSET_BYTES_PER_MS = 4e9
_COPY_BYTES_PER_MS = 5e7


@dataclass
class Behaviour:
    """A pretended kernel: what a launch does, how long it takes, and what the compiler made of it.

    `run(memory, *numbers)` gets the argument buffer's numbers; it may raise `Lost` or `Refused`.
    """

    run: Callable[..., None] = lambda memory, *numbers: None
    time_ms: float = 0.1
    registers: int = 32
    shared_bytes: int = 0
    local_bytes: int = 0
    max_threads: int = 1024
    launches: list[dict[str, Any]] = field(default_factory=list)
    is_the_backends_own: bool = False


class Lost(Exception):
    """The launch destroys the context; its text is what every later call says."""


class Refused(Exception):
    """The launch is refused with this text, by the exception class named in `kind`."""

    def __init__(self, text: str, kind: str = "LogicError") -> None:
        super().__init__(text)
        self.kind = kind


class Memory:
    """The device's memory: allocations by address."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.blocks: dict[int, np.ndarray] = {}
        self._next = _BASE

    @property
    def used(self) -> int:
        return sum(block.size for block in self.blocks.values())

    def allocate(self, nbytes: int) -> int:
        address = self._next
        self._next += (nbytes + 511) // 512 * 512 + 512
        self.blocks[address] = np.full(nbytes, 0xCD, np.uint8)
        return address

    def view(self, address: int, nbytes: int) -> np.ndarray:
        """The bytes at `address`; outside any allocation is an illegal address."""
        for base, block in self.blocks.items():
            if base <= address and address + nbytes <= base + block.size:
                return block[address - base : address - base + nbytes]
        raise Lost("an illegal memory access was encountered")

    def array(self, address: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        dtype = np.dtype(dtype)
        return self.view(address, int(np.prod(shape)) * dtype.itemsize).view(dtype).reshape(shape)


class FakeDriver(types.ModuleType):
    """`pycuda.driver`, as far as the backend uses it."""

    def __init__(
        self,
        behaviours: Mapping[str, Behaviour] | None = None,
        *,
        devices: int = 1,
        total_bytes: int = 1 << 28,
        attributes: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__("pycuda.driver")
        self.behaviours = dict(behaviours or {})
        self.attributes = {**ATTRIBUTES, **(attributes or {})}
        self.devices = devices
        self.memory = Memory(total_bytes)
        self.host_ms = self.device_ms = 0.0
        self.call_ms = 0.002
        self.stall_ms: list[float] = []
        self.lost = ""
        self.refuse_init = ""
        self.canary_is_right = True
        self.product_is_off = 0.0
        self.contexts: list[Any] = []
        self.set_attributes: list[tuple[Any, int]] = []
        self.host_copies: list[int] = []
        self.spins_ms: list[float] = []
        self.pinned: list[np.ndarray] = []
        self.waits: list[tuple[Any, Any]] = []
        self.most_pinned = 1 << 30
        # What a stream that records has been given, and how fast the SMs run beside what they should.
        self.recording: list[Callable[[], None]] | None = None
        # What an event takes on the stream.
        self.event_ms = 0.0
        self.clock_share: Callable[[], float] = lambda: 1.0
        self._make_classes()

    def call(self, name: str) -> None:
        """Every driver call takes time, and fails once the context is lost."""
        self.host_ms += self.call_ms
        if self.lost:
            raise self.LogicError(f"{name} failed: {self.lost}")

    def enqueue(self, milliseconds: float) -> None:
        self.device_ms = max(self.device_ms, self.host_ms) + milliseconds

    def _make_classes(self) -> None:
        self.Error = type("Error", (Exception,), {})
        for name in ("LogicError", "LaunchError", "MemoryError", "RuntimeError"):
            setattr(self, name, type(name, (self.Error,), {}))
        for kind in (_Device, _Context, _Stream, _Event):
            setattr(self, kind.__name__[1:], type(kind.__name__[1:], (kind,), {"driver": self}))
        self.device_attribute = types.SimpleNamespace(
            **{name: name for name in [*self.attributes, "TCC_DRIVER"]}
        )
        self.function_attribute = types.SimpleNamespace(
            NUM_REGS="registers",
            LOCAL_SIZE_BYTES="local_bytes",
            SHARED_SIZE_BYTES="shared_bytes",
            MAX_THREADS_PER_BLOCK="max_threads",
            MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic",
        )

    def init(self) -> None:
        if self.refuse_init:
            raise self.RuntimeError(f"cuInit failed: {self.refuse_init}")

    def get_driver_version(self) -> int:
        return 13010

    def mem_get_info(self) -> tuple[int, int]:
        self.call("cuMemGetInfo")
        return self.memory.total - self.memory.used, self.memory.total

    def mem_alloc(self, nbytes: int) -> Any:
        self.call("cuMemAlloc")
        if nbytes > self.memory.total - self.memory.used:
            raise self.MemoryError("cuMemAlloc failed: out of memory")
        return _Allocation(self.memory, self.memory.allocate(nbytes))

    def memcpy_htod(self, address: int, data: Any) -> None:
        self.call("cuMemcpyHtoD")
        flat = np.frombuffer(data, np.uint8)
        self.host_copies.append(flat.size)
        self.memory.view(address, flat.size)[:] = flat

    def memcpy_dtoh(self, data: Any, address: int) -> None:
        self.call("cuMemcpyDtoH")
        flat = np.frombuffer(data, np.uint8)
        self.host_copies.append(flat.size)
        flat[:] = self.memory.view(address, flat.size)

    def memcpy_htod_async(self, address: int, data: Any, stream: Any) -> None:
        self.memcpy_htod(address, self._require_pinned(data))
        self.enqueue(len(data) / _COPY_BYTES_PER_MS)

    def memcpy_dtoh_async(self, data: Any, address: int, stream: Any) -> None:
        self.memcpy_dtoh(self._require_pinned(data), address)
        self.enqueue(len(data) / _COPY_BYTES_PER_MS)

    def pagelocked_empty(self, nbytes: int, dtype: Any) -> np.ndarray:
        self.call("cuMemHostAlloc")
        if nbytes > self.most_pinned:
            raise self.MemoryError("cuMemHostAlloc failed: out of memory")
        self.pinned.append(np.empty(nbytes, dtype))
        return self.pinned[-1]

    def _require_pinned(self, data: np.ndarray) -> np.ndarray:
        assert any(np.shares_memory(data, block) for block in self.pinned), (
            "only pinned memory is copied later"
        )
        return data

    def memcpy_dtod_async(self, to: int, source: int, nbytes: int, stream: Any) -> None:
        self.call("cuMemcpyDtoDAsync")
        self.memory.view(to, nbytes)[:] = self.memory.view(source, nbytes)
        self.enqueue(nbytes / _MEMSET_BYTES_PER_MS)

    def memset_d8_async(self, address: int, value: int, nbytes: int, stream: Any) -> None:
        self.call("cuMemsetD8Async")
        self.memory.view(address, nbytes)[:] = value
        self.enqueue(nbytes / _MEMSET_BYTES_PER_MS)

    def module_from_buffer(self, image: bytes) -> Any:
        self.call("cuModuleLoadDataEx")
        if b".entry sweeper_canary" in image:
            assert image.endswith(b"\0")
            return _Module(self, _own_kernels(self))
        if not image.startswith(b"\x7fELF"):
            raise self.LogicError("cuModuleLoadDataEx failed: device kernel image is invalid")
        return _Module(self, {n: b for n, b in self.behaviours.items() if f".text.{n}\0".encode() in image})


class _Device:
    driver: FakeDriver

    def __init__(self, index: int) -> None:
        self.index = index

    @classmethod
    def count(cls) -> int:
        return cls.driver.devices

    def name(self) -> str:
        return "NVIDIA Pretended"

    def pci_bus_id(self) -> str:
        return f"0000:{self.index + 4:02x}:00.0"

    def total_memory(self) -> int:
        return self.driver.memory.total

    def get_attribute(self, name: str) -> int:
        if name not in self.driver.attributes:
            raise self.driver.LogicError("cuDeviceGetAttribute failed: invalid argument")
        return self.driver.attributes[name]

    def retain_primary_context(self) -> Any:
        return self.driver.Context()


class _Context:
    driver: FakeDriver

    def push(self) -> None:
        self.driver.contexts.append(self)

    @classmethod
    def pop(cls) -> None:
        if not cls.driver.contexts:
            raise cls.driver.LogicError("cuCtxPopCurrent failed: invalid device context")
        cls.driver.contexts.pop()

    @classmethod
    def synchronize(cls) -> None:
        cls.driver.call("cuCtxSynchronize")


class _Stream:
    driver: FakeDriver
    handle = 0x5EA

    def wait_for_event(self, event: _Event) -> None:
        self.driver.call("cuStreamWaitEvent")
        self.driver.waits.append((self, event))

    def synchronize(self) -> None:
        self.driver.call("cuStreamSynchronize")
        self.driver.host_ms = max(self.driver.host_ms, self.driver.device_ms)


class _Event:
    driver: FakeDriver
    at_ms = 0.0

    def record(self, stream: _Stream) -> _Event:
        self.driver.call("cuEventRecord")
        self.driver.enqueue(self.driver.event_ms)
        self.at_ms = self.driver.device_ms
        return self

    def query(self) -> bool:
        self.driver.call("cuEventQuery")
        return self.at_ms <= self.driver.host_ms

    def synchronize(self) -> _Event:
        self.driver.call("cuEventSynchronize")
        self.driver.host_ms = max(self.driver.host_ms, self.at_ms)
        return self

    def time_since(self, other: _Event) -> float:
        return self.at_ms - other.at_ms


class _Allocation:
    def __init__(self, memory: Memory, address: int) -> None:
        self._memory = memory
        self._address = address

    def __int__(self) -> int:
        return self._address

    def __del__(self) -> None:
        self._memory.blocks.pop(self._address, None)


class _Module:
    def __init__(self, driver: FakeDriver, behaviours: Mapping[str, Behaviour]) -> None:
        self._driver = driver
        self._behaviours = behaviours

    def get_function(self, name: str) -> Any:
        self._driver.call("cuModuleGetFunction")
        if name not in self._behaviours:
            raise self._driver.LogicError("cuModuleGetFunction failed: named symbol not found")
        return _Function(self._driver, self._behaviours[name])


class _Function:
    def __init__(self, driver: FakeDriver, behaviour: Behaviour) -> None:
        self._driver = driver
        self._behaviour = behaviour
        self._letters: list[str] = []
        self._dynamic = 48 * 1024 - behaviour.shared_bytes

    def get_attribute(self, name: str) -> int:
        return getattr(self._behaviour, name)

    def set_attribute(self, name: str, value: int) -> None:
        self._driver.set_attributes.append((name, value))
        self._dynamic = value

    def prepare(self, letters: list[str]) -> _Function:
        self._letters = letters
        return self

    def prepared_async_call(self, grid, block, stream, *numbers, shared_size=0) -> None:
        driver, behaviour = self._driver, self._behaviour
        driver.call("cuLaunchKernel")
        if driver.stall_ms and not behaviour.is_the_backends_own:
            driver.host_ms += driver.stall_ms.pop(0)
        struct.pack("@" + "".join(self._letters), *numbers)
        assert all(type(size) is int for size in (*grid, *block)), "PyCUDA takes Python integers only"
        if np.prod(block) > 1024 or shared_size > self._dynamic:
            raise driver.LogicError("cuLaunchKernel failed: invalid argument")
        if driver.recording is not None:
            driver.recording.append(lambda: self._run(numbers, grid, block, shared_size))
            return
        self._run(numbers, grid, block, shared_size)

    def _run(self, numbers, grid, block, shared_size) -> None:
        driver, behaviour = self._driver, self._behaviour
        behaviour.launches.append({"grid": grid, "block": block, "shared": shared_size, "numbers": numbers})
        driver.enqueue(behaviour.time_ms)
        try:
            behaviour.run(driver.memory, *numbers)
        except Lost as lost:
            driver.lost = str(lost)
        except Refused as refused:
            raise getattr(driver, refused.kind)(f"cuLaunchKernel failed: {refused}") from None


def _own_kernels(driver: FakeDriver) -> dict[str, Behaviour]:
    """The kernels of `device_code.cu`: what they compute is `fake_device_code`'s business."""

    def canary(memory: Memory, out: int, seed: int) -> None:
        values = memory.array(out, (512,), np.uint32)
        values[:] = np.arange(512, dtype=np.uint32) + seed
        values[7] += 0 if driver.canary_is_right else 1

    def spin(memory: Memory, cycles: int) -> None:
        milliseconds = cycles / driver.attributes["CLOCK_RATE"] / driver.clock_share()
        driver.spins_ms.append(milliseconds)
        driver.enqueue(milliseconds)

    def product(memory: Memory, *numbers: int) -> None:
        fake_device_code.product(memory, *numbers)
        memory.array(numbers[-2], (1,), np.float64)[0] += driver.product_is_off

    kernels = {**fake_device_code.KERNELS, "canary": canary, "product": product}
    return {
        "sweeper_spin": Behaviour(spin, time_ms=0.0, is_the_backends_own=True),
        "sweeper_empty": Behaviour(time_ms=0.001, is_the_backends_own=True),
        **{
            f"sweeper_{name}": Behaviour(run, time_ms=0.001, is_the_backends_own=True)
            for name, run in kernels.items()
        },
    }
