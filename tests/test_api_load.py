"""`load_kernel` on a pretended GPU: what is launched, on whose arrays, and what is refused before it."""

from __future__ import annotations

import ctypes
import json
import struct
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cubins import Figures, cubin
from fake_pycuda import Behaviour, FakeDriver
from specs import array, gemm_spec, saxpy_spec

from sweeper.api import loading
from sweeper.api.loading import _wanted
from sweeper.backend.cuda import callable_kernel, launching, shared_device
from sweeper.backend.cuda.callable_kernel import CallableKernel
from sweeper.backend.cuda.foreign import read_array, stream_handle
from sweeper.backend.cuda.launching import LaunchError
from sweeper.backend.cuda.shared_device import SharedDevice
from sweeper.backend.cuda.tensor_maps import MAP_BYTES
from sweeper.dispatch import best as dispatched
from sweeper.errors import ConfigError, KernelError, NoValidConfiguration, SetupError, TrialFailed
from sweeper.expressions import parse
from sweeper.model import Build, Direction, KernelSpec, Launch, Point, TensorMapSpec
from sweeper.paths import checkout_root

DIMS = {"M": 12, "N": 10, "K": 8}
LEGACY = 0


# --- A pretended GPU ----------------------------------------------------------------------------------


@dataclass
class Queued:
    """A launch: its geometry, stream, and arguments as the kernel would find them."""

    launch: Launch
    stream: int
    numbers: tuple[Any, ...]
    maps: list[bytes]


@dataclass
class Gpu:
    """A pretended device with one kernel, `matmul`, and libraries that have arrays on it.

    `letters` are those of the kernel's arguments; `run(memory, *numbers)` is what it does.
    """

    driver: FakeDriver
    folder: Path
    letters: str = "PPPiii"
    run: Callable[..., None] = lambda memory, *numbers: None
    queued: list[Queued] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)
    owners: dict[int, int | None] = field(default_factory=dict)
    shared: list[int] = field(default_factory=list)
    refuses: str = ""
    unloaded: int = 0
    held: list[Any] = field(default_factory=list)

    # As the driver's launches.

    def encoder(self, *arguments: Any) -> int:
        place, address = arguments[0].value, arguments[3].value
        ctypes.memmove(place, struct.pack("=Q", address), 8)
        return 0

    def load(self, image: bytes) -> int:
        assert self.driver.contexts, "only in a context"
        return 7

    def unload(self, module: int) -> None:
        self.unloaded += 1

    def function(self, module: int, symbol: str, shared_bytes: int) -> int:
        assert (module, symbol) == (7, "matmul")
        self.shared.append(shared_bytes)
        return 8

    def launch(self, function: int, launch: Launch, stream: int, parameters: Any) -> None:
        assert function == 8
        assert self.driver.contexts, "only in a context"
        if self.refuses:
            raise LaunchError(f"cuLaunchKernelEx failed: {self.refuses}")
        places = list(parameters)
        sizes = {"P": 8, "H": 2, "d": 8}
        numbers = tuple(
            struct.unpack("=Q" if c == "P" else f"={c}", ctypes.string_at(p, sizes.get(c, 4)))[0]
            for c, p in zip(self.letters, places, strict=False)
        )
        maps = [ctypes.string_at(p, MAP_BYTES) for p in places[len(self.letters) :]]
        self.queued.append(Queued(launch, stream, numbers, maps))
        self.run(self.driver.memory, *numbers)

    # As what the driver knows of pointers and streams.

    def device_of(self, pointer: int) -> int | None:
        return self.owners.get(pointer, 0)

    def wait(self, stream: int, other: int) -> None:
        self.waits.append((stream, other))

    # As a library with arrays.

    def put(self, data: np.ndarray, **interface: Any) -> Any:
        """`data` as it lies, gaps included, on the device, with the CUDA array interface."""
        low = data.__array_interface__["data"][0]
        reach = sum((n - 1) * s for n, s in zip(data.shape, data.strides, strict=True)) + data.itemsize
        allocation = self.driver.mem_alloc(reach)
        self.held.append(allocation)
        self.driver.memory.view(int(allocation), reach)[:] = np.frombuffer(
            (ctypes.c_char * reach).from_address(low), np.uint8
        )
        described = {
            "shape": data.shape,
            "typestr": data.dtype.str,
            "data": (int(allocation), False),
            "strides": None if data.flags.c_contiguous else data.strides,
            "version": 3,
            **interface,
        }
        return types.SimpleNamespace(__cuda_array_interface__=described)

    def empty(self, shape: tuple[int, ...], dtype: Any = np.float32, **interface: Any) -> Any:
        return self.put(np.zeros(shape, dtype), **interface)

    def get(self, held: Any, dtype: Any = np.float32) -> np.ndarray:
        told = held.__cuda_array_interface__
        return self.driver.memory.array(told["data"][0], told["shape"], dtype)

    def kernel(self, spec: KernelSpec | None = None, dims: Mapping[str, int] | None = None) -> CallableKernel:
        spec = spec or gemm_spec()
        path = self.folder / "matmul.cubin"
        path.write_bytes(cubin({"matmul": Figures()}))
        self.driver.behaviours["matmul"] = Behaviour()
        build = Build("key", "nvcc", path, "matmul", "nvcc 13")
        row = {"kernel": spec.name}
        return CallableKernel(
            SharedDevice(0), spec, spec.default_point, build, dims or DIMS, "// the source", row
        )


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    driver = FakeDriver(devices=2)
    made = Gpu(driver, tmp_path, run=product)

    def memset_d8(address: int, value: int, nbytes: int) -> None:
        driver.memory.view(address, nbytes)[:] = value

    driver.memset_d8 = memset_d8  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pycuda", types.ModuleType("pycuda"))
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)
    monkeypatch.setattr(launching, "load_launch_api", lambda: made)
    monkeypatch.setattr(shared_device, "load_pointer_api", lambda: made)
    return made


def product(memory: Any, a: int, b: int, c: int, m: int, n: int, k: int) -> None:
    left, right = memory.array(a, (m, k), np.float32), memory.array(b, (k, n), np.float32)
    memory.array(c, (m, n), np.float32)[:] = left @ right


def matrices(m: int = 12, n: int = 10, k: int = 8) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.random((m, k), np.float32), rng.random((k, n), np.float32)


# --- Calling ------------------------------------------------------------------------------------------


class TestCalling:
    def test_a_call_computes(self, gpu: Gpu) -> None:
        a, b = matrices()
        c = gpu.empty((12, 10))
        gpu.kernel()(gpu.put(a), gpu.put(b), c)
        np.testing.assert_allclose(gpu.get(c), a @ b, rtol=1e-6)

    def test_sizes_and_grid_are_those_of_the_arrays(self, gpu: Gpu) -> None:
        kernel = gpu.kernel()
        for m, n, k in ((12, 10, 8), (33, 17, 5), (12, 10, 8)):
            a, b = matrices(m, n, k)
            c = gpu.empty((m, n))
            kernel(gpu.put(a), gpu.put(b), c)
            np.testing.assert_allclose(gpu.get(c), a @ b, rtol=1e-5)
        assert [one.launch.grid for one in gpu.queued] == [(2, 2, 1), (3, 5, 1), (2, 2, 1)]

    def test_arrays_may_be_given_by_name(self, gpu: Gpu) -> None:
        a, b = matrices()
        c = gpu.empty((12, 10))
        gpu.kernel()(gpu.put(a), C=c, B=gpu.put(b))
        np.testing.assert_allclose(gpu.get(c), a @ b, rtol=1e-6)

    def test_no_context_stays_behind(self, gpu: Gpu) -> None:
        kernel = gpu.kernel()
        with pytest.raises(ConfigError):
            kernel(gpu.empty((12, 8)), gpu.empty((9, 10)), gpu.empty((12, 10)))
        kernel(gpu.empty((12, 8)), gpu.empty((8, 10)), gpu.empty((12, 10)))
        assert gpu.driver.contexts == []

    def test_it_says_what_it_is(self, gpu: Gpu) -> None:
        kernel = gpu.kernel()
        assert kernel.arrays == ("A", "B", "C")
        assert (kernel.launch_config.block, kernel.launch_config.grid) == ((8, 8, 1), (2, 2, 1))
        assert kernel.cubin.startswith(b"\x7fELF")
        assert (kernel.source, kernel.row, kernel.params) == (
            "// the source",
            {"kernel": "tiled"},
            {"tile": 8},
        )
        assert kernel.build.registers == 32
        assert repr(kernel) == "<tiled(A, B, C) with tile=8, float32, on NVIDIA Pretended>"

    def test_the_module_goes_with_the_kernel(self, gpu: Gpu) -> None:
        kernel = gpu.kernel()
        del kernel
        assert gpu.unloaded == 1

    def test_rows_may_lie_apart_where_the_kernel_knows_leading_dimensions(self, gpu: Gpu) -> None:
        gpu.letters = "PPPiiiiii"
        gpu.run = lambda memory, *numbers: None
        wide = np.zeros((12, 16), np.float32)
        gpu.kernel(with_leading_dimensions())(gpu.put(wide[:, :8]), gpu.empty((8, 10)), gpu.empty((12, 10)))
        assert gpu.queued[0].numbers[3:] == (12, 10, 8, 16, 10, 10)

    def test_a_scalar_that_no_size_decides_may_be_given(self, gpu: Gpu) -> None:
        gpu.letters = "ifPP"
        gpu.run = lambda memory, *numbers: None
        kernel = gpu.kernel(replace(saxpy_spec(), entry="matmul"), {"N": 1024})
        for options in ({}, {"a": 3.0}, {"a": np.float32(0.5)}):
            kernel(gpu.empty((100,)), gpu.empty((100,)), **options)
        assert [one.numbers[:2] for one in gpu.queued] == [(100, 2.5), (100, 3.0), (100, 0.5)]
        with pytest.raises(ConfigError, match="n = N follows from the sizes"):
            kernel(gpu.empty((100,)), gpu.empty((100,)), n=3)

    def test_tensor_maps_are_of_the_arrays_given(self, gpu: Gpu) -> None:
        maps = tuple(TensorMapSpec(f"{n}_map", (n,), (parse(8), parse(4)), parse(0)) for n in ("A", "B"))
        a, b, c = gpu.empty((12, 8)), gpu.empty((8, 12)), gpu.empty((12, 12))
        gpu.kernel(replace(gemm_spec(), tensor_maps=maps))(a, b, c)
        mapped = [struct.unpack_from("=Q", one)[0] for one in gpu.queued[0].maps]
        assert mapped == [held.__cuda_array_interface__["data"][0] for held in (a, b)]

    def test_a_launch_that_the_driver_refuses_is_a_failure(self, gpu: Gpu) -> None:
        kernel, gpu.refuses = gpu.kernel(), "invalid argument"
        with pytest.raises(TrialFailed, match="invalid argument"):
            kernel(gpu.empty((12, 8)), gpu.empty((8, 10)), gpu.empty((12, 10)))

    def test_what_it_cannot_do_at_other_sizes_is_said_before_the_launch(self, gpu: Gpu) -> None:
        kernel = gpu.kernel(replace(gemm_spec(), constraints=(parse("K % 4 == 0"),)))
        with pytest.raises(NoValidConfiguration, match="K % 4 == 0"):
            kernel(gpu.empty((12, 6)), gpu.empty((6, 10)), gpu.empty((12, 10)))
        assert not gpu.queued


def with_leading_dimensions() -> KernelSpec:
    spec = gemm_spec(leading=True)
    pitches = {"A": "LDA", "B": "LDB", "C": "LDC"}
    args = tuple(
        replace(a, pitch=parse(pitches[a.name])) if a.name in pitches
        else replace(a, value=parse(a.name.upper())) if a.name.startswith("ld")
        else a
        for a in spec.args
    )  # fmt: skip
    defaults = {"LDA": parse("K"), "LDB": parse("N"), "LDC": parse("N")}
    return replace(spec, args=args, optional_dims=defaults)


class TestWorkspaces:
    def spec(self) -> KernelSpec:
        spec = gemm_spec()
        scratch = replace(array("sums", ["M", "N"]), direction=Direction.SCRATCH, fill="zeros")
        return replace(spec, args=(*spec.args[:3], scratch, *spec.args[3:]))

    def call(self, gpu: Gpu, kernel: CallableKernel, stream: int = 5, m: int = 12) -> int:
        """Where the workspace lay."""
        kernel(gpu.empty((m, 8)), gpu.empty((8, 10)), gpu.empty((m, 10)), stream=stream)
        return int(gpu.queued[-1].numbers[3])

    @pytest.fixture(autouse=True)
    def four_pointers(self, gpu: Gpu) -> None:
        gpu.letters = "PPPPiii"
        gpu.run = lambda memory, *numbers: None

    def test_it_is_zeroed_once_and_kept(self, gpu: Gpu) -> None:
        kernel = gpu.kernel(self.spec())
        first = self.call(gpu, kernel)
        held = gpu.driver.memory.array(first, (12, 10), np.float32)
        assert not held.any()
        held[:] = 3.0
        assert self.call(gpu, kernel) == first
        assert held.all()

    def test_streams_and_sizes_have_their_own(self, gpu: Gpu) -> None:
        kernel = gpu.kernel(self.spec())
        places = {self.call(gpu, kernel), self.call(gpu, kernel, stream=6), self.call(gpu, kernel, m=24)}
        assert len(places) == 3

    def test_they_can_be_given_back(self, gpu: Gpu) -> None:
        kernel = gpu.kernel(self.spec())
        self.call(gpu, kernel)
        used = gpu.driver.memory.used
        kernel.free()
        assert gpu.driver.memory.used == used - 12 * 10 * 4
        self.call(gpu, kernel)


class TestStreams:
    def test_by_default_it_is_the_legacy_default_stream(self, gpu: Gpu) -> None:
        gpu.kernel()(gpu.empty((12, 8)), gpu.empty((8, 10)), gpu.empty((12, 10)))
        assert gpu.queued[-1].stream == LEGACY

    def test_the_stream_that_an_array_names_is_taken(self, gpu: Gpu) -> None:
        kernel = gpu.kernel()
        kernel(gpu.empty((12, 8), stream=77), gpu.empty((8, 10)), gpu.empty((12, 10)))
        assert gpu.queued[-1].stream == 77
        assert gpu.waits == []

    def test_a_launch_elsewhere_waits_for_the_arrays(self, gpu: Gpu) -> None:
        gpu.kernel()(
            gpu.empty((12, 8), stream=77), gpu.empty((8, 10), stream=77), gpu.empty((12, 10)), stream=99
        )
        assert (gpu.queued[-1].stream, gpu.waits) == (99, [(99, 77)])

    def test_both_names_of_the_legacy_stream_are_one(self, gpu: Gpu) -> None:
        gpu.kernel()(gpu.empty((12, 8), stream=1), gpu.empty((8, 10)), gpu.empty((12, 10)), stream=0)
        assert gpu.waits == []

    @pytest.mark.parametrize(
        "stream",
        [
            9,
            types.SimpleNamespace(cuda_stream=9),
            types.SimpleNamespace(ptr=9),
            types.SimpleNamespace(handle=9),
            types.SimpleNamespace(handle=ctypes.c_void_p(9)),
            types.SimpleNamespace(__cuda_stream__=lambda: (0, 9)),
        ],
    )
    def test_a_stream_of_any_library(self, stream: Any) -> None:
        assert stream_handle(stream) == 9

    def test_numbas_default_stream_has_no_handle(self) -> None:
        assert stream_handle(types.SimpleNamespace(handle=ctypes.c_void_p(None))) == 0

    def test_what_is_no_stream_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="is no CUDA stream"):
            stream_handle("default")


# --- What is refused ----------------------------------------------------------------------------------


class TestRefusals:
    @pytest.fixture
    def kernel(self, gpu: Gpu) -> CallableKernel:
        return gpu.kernel()

    def refused(self, gpu: Gpu, kernel: CallableKernel, said: str, **arrays: Any) -> ConfigError:
        usual = {"A": gpu.empty((12, 8)), "B": gpu.empty((8, 10)), "C": gpu.empty((12, 10))}
        with pytest.raises(ConfigError, match=said) as caught:
            kernel(**{**usual, **arrays})
        assert not gpu.queued
        return caught.value

    def test_another_type(self, gpu: Gpu, kernel: CallableKernel) -> None:
        wrong = gpu.empty((12, 8), np.float64)
        self.refused(gpu, kernel, "A is of float32, and what is given of float64", A=wrong)

    def test_sizes_that_contradict_each_other(self, gpu: Gpu, kernel: CallableKernel) -> None:
        self.refused(gpu, kernel, r"K is 8 by A \(12, 8\) and 9 by B \(9, 10\)", B=gpu.empty((9, 10)))

    def test_another_number_of_axes(self, gpu: Gpu, kernel: CallableKernel) -> None:
        self.refused(gpu, kernel, r"A is M × K, and what is given has the shape \(96,\)", A=gpu.empty((96,)))

    def test_columns_in_place_of_rows(self, gpu: Gpu, kernel: CallableKernel) -> None:
        turned = gpu.put(np.zeros((8, 12), np.float32).T)
        error = self.refused(gpu, kernel, "A: axis 0 of what is given has a stride of 4 B", A=turned)
        assert "contiguous" in str(error)

    def test_gaps_between_rows_where_the_kernel_knows_of_none(self, gpu: Gpu, kernel: CallableKernel) -> None:
        apart = gpu.put(np.zeros((12, 16), np.float32)[:, :8])
        self.refused(gpu, kernel, "stride of 64 B, and the kernel takes 32 B", A=apart)

    def test_an_output_that_may_only_be_read(self, gpu: Gpu, kernel: CallableKernel) -> None:
        c = gpu.empty((12, 10))
        told = c.__cuda_array_interface__
        told["data"] = (told["data"][0], True)
        self.refused(gpu, kernel, "C is written, and what is given may only be read", C=c)

    def test_another_gpu(self, gpu: Gpu, kernel: CallableKernel) -> None:
        a = gpu.empty((12, 8))
        gpu.owners[a.__cuda_array_interface__["data"][0]] = 1
        assert "device=1" in str(self.refused(gpu, kernel, "A is on GPU 1, and the kernel on GPU 0", A=a))

    def test_memory_that_the_driver_does_not_know(self, gpu: Gpu, kernel: CallableKernel) -> None:
        a = gpu.empty((12, 8))
        gpu.owners[a.__cuda_array_interface__["data"][0]] = None
        self.refused(gpu, kernel, "not known to the CUDA driver", A=a)

    def test_an_address_that_is_not_aligned(self, gpu: Gpu, kernel: CallableKernel) -> None:
        a = gpu.empty((14, 8))
        told = a.__cuda_array_interface__
        told |= {"data": (told["data"][0] + 4, False), "shape": (12, 8)}
        self.refused(gpu, kernel, "not a multiple of 16 bytes", A=a)

    def test_an_output_on_an_input(self, gpu: Gpu, kernel: CallableKernel) -> None:
        c = gpu.empty((24, 10))
        told = dict(c.__cuda_array_interface__)
        c.__cuda_array_interface__["shape"] = (12, 10)
        a = types.SimpleNamespace(
            __cuda_array_interface__={**told, "data": (told["data"][0] + 64, False), "shape": (12, 8)}
        )
        self.refused(gpu, kernel, "C, which is written, lies on A", A=a, C=c)

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            (np.zeros((12, 8), np.float32), "NumPy array, which is in the host's memory"),
            ([1.0], "A is a builtins.list, which is no array on a GPU"),
        ],
    )
    def test_what_is_on_no_gpu(self, gpu: Gpu, kernel: CallableKernel, given: Any, said: str) -> None:
        self.refused(gpu, kernel, said, A=given)

    def test_masks_big_endians_and_the_ambiguous_stream(self, gpu: Gpu, kernel: CallableKernel) -> None:
        for interface, said in (
            ({"mask": object()}, "has a mask"),
            ({"typestr": ">f4"}, "big-endian"),
            ({"stream": 0}, "stream 0 is not allowed"),
        ):
            self.refused(gpu, kernel, said, A=gpu.empty((12, 8), **interface))

    def test_too_few_too_many_and_unknown_ones(self, gpu: Gpu, kernel: CallableKernel) -> None:
        a = gpu.empty((12, 8))
        for arrays, named, said in (
            ((a, a), {}, "C is missing"),
            ((a, a, a, a), {}, "takes 3 arrays"),
            ((a, a, a), {"C": a}, "C is given twice"),
            ((a, a, a), {"alpha": 1.0}, "has no argument alpha"),
        ):
            with pytest.raises(ConfigError, match=said):
                kernel(*arrays, **named)


# --- Arrays of torch ----------------------------------------------------------------------------------


class Tensor:
    """What is asked of a torch tensor."""

    def __init__(self, data: np.ndarray, pointer: int, *, device: str = "cuda", index: int = 0) -> None:
        self.shape, self.dtype = data.shape, f"torch.{data.dtype.name}"
        self.device = types.SimpleNamespace(type=device, index=index)
        self.requires_grad = False
        self._pointer, self._strides, self._item = pointer, data.strides, data.itemsize

    def data_ptr(self) -> int:
        return self._pointer

    def element_size(self) -> int:
        return self._item

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self._item for step in self._strides)


@pytest.fixture
def torch(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> Callable[[tuple[int, ...], Any], Tensor]:
    """Makes tensors; torch's current stream is 0xBEE."""
    module = types.ModuleType("torch")
    module.Tensor = Tensor  # type: ignore[attr-defined]
    module.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
        current_stream=lambda index: types.SimpleNamespace(cuda_stream=0xBEE)
    )
    monkeypatch.setitem(sys.modules, "torch", module)

    def make(shape: tuple[int, ...], dtype: Any = np.float32, **options: Any) -> Tensor:
        data = np.zeros(shape, dtype)
        allocation = gpu.driver.mem_alloc(data.nbytes)
        gpu.held.append(allocation)
        return Tensor(data, int(allocation), **options)

    return make


class TestTorch:
    def test_tensors_are_launched_on_torchs_current_stream(self, gpu: Gpu, torch: Any) -> None:
        gpu.kernel()(torch((12, 8)), torch((8, 10)), torch((12, 10)))
        assert gpu.queued[0].stream == 0xBEE

    def test_bfloat16_which_the_array_interface_does_not_know(self, gpu: Gpu, torch: Any) -> None:
        gpu.run = lambda memory, *numbers: None
        shapes = (12, 8), (8, 10), (12, 10)
        gpu.kernel(gemm_spec(dtype="bfloat16"))(*(torch(shape, ml_dtypes.bfloat16) for shape in shapes))
        assert len(gpu.queued) == 1

    def test_of_others_its_bits_are_taken(self, gpu: Gpu) -> None:
        gpu.run = lambda memory, *numbers: None
        shapes = (12, 8), (8, 10), (12, 10)
        kernel = gpu.kernel(gemm_spec(dtype="bfloat16"))
        kernel(*(gpu.empty(shape, np.uint16) for shape in shapes))
        with pytest.raises(ConfigError, match="is of bfloat16, and what is given of float16"):
            kernel(*(gpu.empty(shape, np.float16) for shape in shapes))

    def test_a_tensor_on_the_host_is_refused(self, torch: Any) -> None:
        with pytest.raises(ConfigError, match=r"A is a tensor on .*cpu.*, not on a GPU"):
            read_array("A", torch((2, 2), device="cpu"))

    def test_an_output_that_autograd_follows_is_refused(self, gpu: Gpu, torch: Any) -> None:
        c = torch((12, 10))
        c.requires_grad = True
        with pytest.raises(ConfigError, match="detach it"):
            gpu.kernel()(torch((12, 8)), torch((8, 10)), c)

    def test_a_tensor_on_another_gpu_is_refused(self, gpu: Gpu, torch: Any) -> None:
        with pytest.raises(ConfigError, match="A is on GPU 1"):
            gpu.kernel()(torch((12, 8), index=1), torch((8, 10)), torch((12, 10)))


def test_an_array_of_pycuda_without_the_interface_is_read() -> None:
    given = types.SimpleNamespace(gpudata=4096, dtype=np.float32, shape=(2, 3), strides=(12, 4))
    read = read_array("A", given)
    assert (read.pointer, read.dtype, read.end) == (4096, "float32", 4096 + 24)


# --- From a row to a kernel ---------------------------------------------------------------------------


ROW = {
    "kernel": "tiled",
    "dtype": "float32",
    "shape": "small-nt",
    "dims": json.dumps(DIMS),
    "params": '{"tile": 8}',
    "status": "ok",
    "role": "candidate",
}


class TestRows:
    def test_a_row_of_a_table_says_all(self) -> None:
        wanted = _wanted(ROW)
        assert (wanted.kernel, wanted.layout, wanted.dims, wanted.params) == (
            "tiled",
            "nt",
            DIMS,
            {"tile": 8},
        )

    def test_so_does_what_the_dispatcher_answers(self) -> None:
        root = checkout_root()
        assert root is not None
        answer = dispatched([root / "results" / "h200" / "tile-sweep"], "512x512x512")
        wanted = _wanted(answer)
        assert (wanted.kernel, wanted.params) == ("tiled", dict(answer.params))

    def test_a_table_of_shapes_names_sizes_in_the_shape(self) -> None:
        row = {"kernel": "tiled", "shape": "12x10x8-nt", "params": '{"tile": 8}'}
        assert (_wanted(row).dims, _wanted(row).layout) == (DIMS, "nt")

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"role": "baseline", "kernel": "cublas"}, "of the library cublas"),
            ({"status": "wrong_result"}, "its status is wrong_result"),
            ({"params": ""}, "the row has no params"),
            ({"params": "{"}, "is no JSON"),
            ({"params": "3"}, "is not a mapping"),
        ],
    )
    def test_a_row_that_is_not_to_be_run_says_why(self, changes: dict[str, Any], said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            _wanted({**ROW, **changes})

    def test_what_is_no_row_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="cannot load a int"):
            _wanted(3)


class TestLoading:
    @pytest.fixture
    def built(self, gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The architectures that were compiled for."""
        archs: list[str] = []
        path = tmp_path / "tiled.cubin"
        path.write_bytes(cubin({"matmul": Figures()}))
        gpu.driver.behaviours["matmul"] = Behaviour()

        def build(spec: KernelSpec, point: Point, arch: str, compiler: str) -> tuple[Build, str]:
            archs.append(arch)
            return Build("key", "nvcc", path, "matmul", "nvcc 13"), f"// {spec.name} {point}"

        monkeypatch.setattr(loading, "_built", build)
        gpu.letters = "PPPiiiiii"
        gpu.run = lambda memory, *numbers: None
        return archs

    def test_a_row_becomes_a_kernel_for_this_gpu(self, gpu: Gpu, built: list[str]) -> None:
        kernel = loading.load_kernel({**ROW, "shape": "small"})
        kernel(gpu.empty((12, 8)), gpu.empty((8, 10)), gpu.empty((12, 10)))
        assert built == [kernel.target.arch]
        assert (kernel.source, kernel.dims) == ("// tiled tile=8", DIMS)
        assert gpu.queued[0].launch.block == (8, 8, 1)

    def test_a_layout_with_a_transposed_operand_takes_it_as_it_lies(self, gpu: Gpu, built: list[str]) -> None:
        kernel = loading.load_kernel(
            {**ROW, "kernel": "naive", "params": '{"bx": 16, "by": 16}'} | naive_params()
        )
        kernel(gpu.empty((12, 8)), gpu.empty((10, 8)), gpu.empty((12, 10)))
        assert gpu.queued[0].numbers[3:6] == (12, 10, 8)

    def test_a_source_that_changed_since_is_warned_of(self, built: list[str]) -> None:
        with pytest.warns(UserWarning, match="not the one that was measured"):
            loading.load_kernel({**ROW, "shape": "small", "kernel_digest": "0123456789abcdef"})

    def test_other_parameters_than_the_kernel_has_are_named(self, built: list[str]) -> None:
        with pytest.raises(KernelError, match="has no parameter tyle, and the row has it"):
            loading.load_kernel({**ROW, "shape": "small", "params": '{"tile": 8, "tyle": 1}'})

    def test_what_cannot_run_here_is_not_compiled(self, built: list[str]) -> None:
        with pytest.raises(NoValidConfiguration, match="threads <= max_threads"):
            loading.load_kernel({**ROW, "shape": "small", "params": '{"tile": 64}'})
        assert not built

    def test_a_kernel_given_has_to_be_the_rows(self, built: list[str]) -> None:
        with pytest.raises(ConfigError, match="the row is of kernel tiled, and the one given is naive"):
            loading.load_kernel({**ROW, "shape": "small"}, kernel="naive")

    def test_without_pycuda_it_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pycuda.driver", None)
        with pytest.raises(SetupError, match="PyCUDA cannot be used"):
            loading.load_kernel({**ROW, "shape": "small"})

    def test_a_gpu_that_is_not_there_is_named(self, gpu: Gpu) -> None:
        with pytest.raises(SetupError, match="no CUDA device 5"):
            loading.load_kernel({**ROW, "shape": "small"}, device=5)


def naive_params() -> dict[str, str]:
    """The default configuration of the shipped kernel that takes any layout."""
    from sweeper.check.compose import Composer

    with Composer() as composer:
        spec, _ = composer.compose(["kernel=naive"])
    return {"params": json.dumps(spec.default_point.params)}


def test_a_call_keeps_no_more_than_a_bounded_number_of_plans(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callable_kernel, "_MOST_PLANS", 2)
    kernel = gpu.kernel()
    for m in range(1, 6):
        kernel(gpu.empty((m, 8)), gpu.empty((8, 10)), gpu.empty((m, 10)))
    assert len(kernel._plans) == 2
