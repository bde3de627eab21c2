"""Launches that PyCUDA cannot express: tensor maps by value, and thread block clusters.

PyCUDA packs arguments into one buffer by the rules of `struct`, which puts a `CUtensorMap` where the kernel
does not look for it. `cuLaunchKernelEx` takes a pointer to each argument and knows from the kernel itself where
it belongs (CUDA Driver API, "Execution Control"). It is called through ctypes, with a module of its own: PyCUDA
does not give away the driver's handle of a function. Parameters are copied when the launch is queued, also into
a graph that is being recorded.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
import weakref
from collections.abc import Sequence
from typing import Any, Protocol

from sweeper.backend.cuda.arguments import Arguments
from sweeper.backend.cuda.device import CudaDevice
from sweeper.backend.cuda.tensor_maps import MAP_BYTES, EncodeError, encode
from sweeper.errors import TrialFailed
from sweeper.model import Launch, Stage, Status

__all__ = ["ExtendedLauncher", "LaunchApi", "LaunchError", "Parameters", "load_launch_api"]

# Of cuda.h: CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION.
_MAX_DYNAMIC_SHARED = 8
_CLUSTER_DIMENSION = 4
_MAP_ALIGNMENT = 64


class LaunchError(Exception):
    """The driver refuses; the text is `cuLaunchKernelEx failed: invalid argument`."""


class LaunchApi(Protocol):
    """The part of the driver that is used. Handles are integers; a failing call raises LaunchError."""

    @property
    def encoder(self) -> Any: ...
    def load(self, image: bytes) -> int: ...
    def unload(self, module: int) -> None: ...
    def function(self, module: int, symbol: str, shared_bytes: int) -> int: ...
    def launch(self, function: int, launch: Launch, stream: int, parameters: Any) -> None: ...


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, of whose 64-byte value a cluster's sizes are the first three words."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


class _Libcuda:
    """The driver's library, which is in the process already where PyCUDA is; its current context is PyCUDA's."""

    def __init__(self, library: Any) -> None:
        self._library = library

    @property
    def encoder(self) -> Any:
        return self._library.cuTensorMapEncodeTiled

    def _call(self, name: str, *arguments: Any) -> None:
        status = int(getattr(self._library, name)(*arguments))
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))
            raise LaunchError(f"{name} failed: {text.value.decode() if text.value else f'error {status}'}")

    def load(self, image: bytes) -> int:
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), image)
        return module.value or 0

    def unload(self, module: int) -> None:
        self._call("cuModuleUnload", ctypes.c_void_p(module))

    def function(self, module: int, symbol: str, shared_bytes: int) -> int:
        found = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(found), ctypes.c_void_p(module), symbol.encode())
        self._call("cuFuncSetAttribute", found, _MAX_DYNAMIC_SHARED, ctypes.c_int(shared_bytes))
        return found.value or 0

    def launch(self, function: int, launch: Launch, stream: int, parameters: Any) -> None:
        config = _Config(launch.grid, launch.block, launch.shared_bytes, stream, None, 0)
        if launch.cluster is not None:
            config.attributes = ctypes.pointer(_Attribute(_CLUSTER_DIMENSION, 0, launch.cluster))
            config.count = 1
        self._call("cuLaunchKernelEx", ctypes.byref(config), ctypes.c_void_p(function), parameters, None)


def load_launch_api() -> LaunchApi:
    """Raises LaunchError where the driver is not there, or older than CUDA 12."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
        library.cuTensorMapEncodeTiled, library.cuLaunchKernelEx  # noqa: B018 - the newest of the functions
    except (OSError, AttributeError) as error:
        raise LaunchError(str(error)) from None
    return _Libcuda(library)


class Parameters:
    """The arguments of one launch in memory, and the array of pointers to them that the driver takes."""

    def __init__(self, letters: Sequence[str], numbers: Sequence[int | float], maps: Sequence[bytes]) -> None:
        sizes = [8] * len(letters) + [MAP_BYTES] * len(maps)
        self._held = ctypes.create_string_buffer(sum(sizes) + 2 * _MAP_ALIGNMENT)
        place = ctypes.addressof(self._held)
        # Maps come first, where they are aligned; the driver is told where each argument lies.
        start = -(-place // _MAP_ALIGNMENT) * _MAP_ALIGNMENT
        places = []
        for index, encoded in enumerate(maps):
            places.append(start + index * MAP_BYTES)
            ctypes.memmove(places[-1], encoded, MAP_BYTES)
        start += len(maps) * MAP_BYTES
        scalars = [start + 8 * index for index in range(len(letters))]
        for at, letter, number in zip(scalars, letters, numbers, strict=True):
            struct.pack_into(f"={'Q' if letter == 'P' else letter}", self._held, at - place, number)
        self.pointers = (ctypes.c_void_p * len(sizes))(*scalars, *places)


class ExtendedLauncher:
    """Queues launches of one loaded kernel whose arguments end with the tensor maps of the problem.

    Each set of arguments has its own maps, encoded at its first launch. Raises TrialFailed where the driver
    does not take the kernel, a map or a launch.
    """

    def __init__(
        self,
        device: CudaDevice,
        image: bytes,
        symbol: str,
        launch: Launch,
        *,
        api: LaunchApi | None = None,
    ) -> None:
        self._device = device
        self._launch = launch
        self._packed: dict[tuple[int | float, ...], Parameters] = {}
        try:
            self._api = api or load_launch_api()
            module = self._api.load(image)
            # Freed with the launcher, as PyCUDA frees its modules; what the driver says then is of no consequence.
            weakref.finalize(self, _unload, self._api, module)
            self._function = self._api.function(module, symbol, launch.shared_bytes)
        except LaunchError as error:
            raise self._failure(error, Stage.LOAD) from None

    def __call__(self, given: Arguments) -> None:
        key = tuple(given.numbers)
        parameters = self._packed.get(key)
        if parameters is None:
            parameters = self._packed[key] = self._pack(given)
        try:
            self._api.launch(
                self._function, self._launch, int(self._device.stream.handle), parameters.pointers
            )
        except LaunchError as error:
            raise self._failure(error, Stage.LAUNCH) from None

    def _pack(self, given: Arguments) -> Parameters:
        held = {**given.arrays, **given.scratch}
        try:
            maps = [
                encode(self._api.encoder, made, held[made.array].pointer)
                for made in given.problem.tensor_maps
            ]
        except EncodeError as error:
            raise TrialFailed(Status.LAUNCH_ERROR, Stage.LAUNCH, str(error)) from None
        return Parameters(given.letters, given.numbers, maps)

    def _failure(self, error: LaunchError, stage: Stage) -> TrialFailed:
        return self._device.failure(error, stage)


def _unload(api: LaunchApi, module: int) -> None:
    with contextlib.suppress(LaunchError):
        api.unload(module)
